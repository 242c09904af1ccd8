"""The calling side. A client is not thread-safe: use one per thread."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from flagscale_perf.rpc.arrays import Array, DType, byte_count
from flagscale_perf.rpc.errors import CallTimeout, InvalidMessage, PeerGone, Refused, RpcError
from flagscale_perf.rpc.options import Arguments, ClientOptions, Hello, Received, Value
from flagscale_perf.rpc.records import CallRecord, Status
from flagscale_perf.rpc.stages import NOTHING_TOLD, told_apart
from flagscale_perf.rpc.transport import header
from flagscale_perf.rpc.transport.endpoint import clear_after, client_endpoint
from flagscale_perf.rpc.transport.handshake import Session, error_of
from flagscale_perf.rpc.transport.header import MAGIC, PREFIX, PROTOCOL, Kind, Prefix
from flagscale_perf.rpc.transport.link_zeromq import Message
from flagscale_perf.rpc.transport.packing import Packer, Slot, Unpacker, first_frame, largest_of
from flagscale_perf.spine.errors import did_you_mean

Observe = Callable[[CallRecord], None]
NO_ARGUMENTS: dict[str, Value] = {}
CALL, REPLY, FAILURE, OK = int(Kind.CALL), int(Kind.REPLY), int(Kind.FAILURE), int(Status.OK)
CLEAR_PATIENCE_S = 1.0
now = time.monotonic_ns
_read_prefix = header.read_prefix
_pack_prefix = PREFIX.pack
_new = tuple.__new__  # half the time of a NamedTuple's own constructor


class Reply:
    """What a call returned.

    Attributes:
        arrays: those in shared memory are overwritten by the next call of this client; copy what is to stay.
        arguments: what the method said beside them.
    """

    __slots__ = ("arguments", "arrays")

    def __init__(self, arrays: list[Array], arguments: dict[str, Received]) -> None:
        self.arrays = arrays
        self.arguments = arguments

    def release(self) -> None:
        """Releases the arrays early; otherwise the next call does."""
        self.arrays = []


class Pending:
    """A call in flight."""

    message: Message | None = None
    prefix: Prefix | None = None
    slot = there_ns = taken_ns = read_ns = 0
    sent_bytes = received_bytes = socket_sent = socket_received = shared_sent = shared_received = dtype = 0
    given_up = False

    def __init__(self, client: Client, method: str, number: int, start_ns: int, deadline_ns: int) -> None:
        self.client = client
        self.method = method
        self.number = number
        self.deadline_ns = deadline_ns
        self.start_ns = self.ready_ns = self.sent_ns = start_ns

    def result(self) -> Reply:
        """Waits for the reply. Raises an `RpcError`; `RemoteFailure` if the method failed."""
        return self.client._result(self)


class Client:
    """A connection to a `Server`.

    Attributes:
        hello: what the server said when they met.
    """

    def __init__(self, session: Session, hello: Hello, observe: Observe | None) -> None:
        """Use `connect`."""
        self.hello = hello
        self._session = session
        self._link = session.link
        self._packer = Packer(session.sizes)
        self._epoch = session.epoch
        self._observe = observe
        self._same_clock = session.welcome.same_clock
        self._methods = {name: n for n, name in enumerate(hello.methods)}
        self._unpacker = Unpacker(session.options.max_message_bytes)
        self._timeout_ns = int(session.options.timeout_s * 1e9)
        self._requests: Sequence[Slot | None] = session.shared.requests or [None] * hello.slots
        self._replies: Sequence[Slot | None] = session.shared.replies or [None] * hello.slots
        self._free = list(reversed(range(hello.slots)))
        self._read_slots: list[int] = []  # of replies that were handed out
        self._next: int | None = None  # of a call for which memory was lent
        self._lent = False
        self._calls = 0
        self._in_flight: dict[int, Pending] = {}
        self._broken: str | None = None
        self._server_gone = False

    @classmethod
    def connect(cls, options: ClientOptions, observe: Observe | None = None) -> Client:
        """Connects to the server, waiting up to `connect_timeout_s` for it to appear. Raises `RpcError`.

        `observe` gets the record of each call, on the calling thread.
        """
        session = Session(options, client_endpoint(options))
        try:
            return cls(session, session.greet(), observe)
        except BaseException:
            session.close()
            raise

    # --- calls

    def call(
        self,
        method: str,
        arrays: Sequence[Array] = (),
        arguments: Arguments = NO_ARGUMENTS,
        timeout_s: float | None = None,
    ) -> Reply:
        """Calls and waits. Raises the fitting `RpcError` of `errors`."""
        return self._result(self.submit(method, arrays, arguments, timeout_s))

    def submit(
        self,
        method: str,
        arrays: Sequence[Array] = (),
        arguments: Arguments = NO_ARGUMENTS,
        timeout_s: float | None = None,
    ) -> Pending:
        """Sends a call and returns at once; up to `hello.slots` calls may be in flight. The arrays must not
        change until the result has arrived. Raises an `RpcError`.
        """
        start = now()
        limit = self._timeout_ns if timeout_s is None else int(timeout_s * 1e9)
        self._calls = number = self._calls + 1
        pending = Pending(self, method, number, start, start + limit)
        try:
            self._send(pending, arrays, arguments)
        except RpcError as error:
            self._failed(pending, error)
            raise
        return pending

    def _send(self, pending: Pending, arrays: Sequence[Array], arguments: Arguments) -> None:
        method = self._methods.get(pending.method)
        if method is None or self._broken is not None:
            raise self._why_not(pending.method)
        pending.slot = number = self._take_slot(pending.deadline_ns)
        slot = self._requests[number]
        if slot is not None and not self._lent:
            slot.begin(pending.number)
        self._lent = False
        try:
            packed = self._packer.pack(arrays, arguments, slot)
            body_bytes, _, _, frames, pending.sent_bytes, pending.shared_sent, _, pending.dtype = packed
            pending.ready_ns = pending.sent_ns = ready = now()
            prefix = _pack_prefix(
                MAGIC, PROTOCOL, CALL, body_bytes, self._epoch, pending.number, method,
                number, 0, ready if self._same_clock else 0, 0, 0,
            )  # fmt: skip
            first = first_frame(prefix, packed)
            pending.socket_sent = len(first) + (sum(map(len, frames)) if frames else 0)
            self._link.send(first, frames, pending.deadline_ns)
        except BaseException:
            self._free.append(number)
            raise
        pending.sent_ns = now()
        self._in_flight[pending.number] = pending

    def _why_not(self, method: str) -> RpcError:
        if self._broken is not None:
            return PeerGone(self._broken)
        known = ", ".join(self._methods)
        return Refused(
            f"the server has no method {method!r}; it has {known}{did_you_mean(method, self._methods)}"
        )

    def _result(self, pending: Pending) -> Reply:
        try:
            if pending.message is None:
                self._receive(pending)
            reply = self._read(pending)
        except RpcError as error:
            self._failed(pending, error)
            raise
        if self._observe is not None:
            self._record(pending, OK)
        return reply

    def _receive(self, pending: Pending) -> None:
        """Receives replies until this one has arrived."""
        while pending.message is None:
            if pending.number not in self._in_flight:
                raise Refused("the result of this call was taken already, or its time was over")
            self._receive_one(pending.deadline_ns)

    def _receive_one(self, deadline_ns: int) -> None:
        message = self._link.receive(deadline_ns)
        taken = now()
        first, _, there = message
        prefix = _read_prefix(first)
        kind, _, _, call, *_ = prefix
        if kind == FAILURE and not call:
            raise error_of("the connection", prefix, first)
        owner = self._in_flight.pop(call, None)
        if owner is None:
            return
        if owner.given_up:  # only now does the server no longer use its slot
            self._free.append(owner.slot)
        else:
            owner.message, owner.prefix, owner.there_ns, owner.taken_ns = message, prefix, there, taken

    def _read(self, pending: Pending) -> Reply:
        message, prefix = pending.message, pending.prefix
        assert message is not None and prefix is not None
        pending.message = None
        pending.read_ns = now()
        number = pending.slot
        self._read_slots.append(number)
        first, frames, _ = message
        kind, _, epoch, call, _, answered, *_ = prefix
        pending.socket_received = len(first) + (sum(map(len, frames)) if frames else 0)
        if kind != REPLY:
            raise error_of(pending.method, prefix, first)
        if epoch != self._epoch or answered != number:
            raise InvalidMessage("a reply of another server, or for another call")
        slot = self._replies[number]
        if slot is not None and not slot.plain:
            slot.begin(call)
        checked = self._unpacker.body(first, prefix)
        arrays = self._unpacker.arrays(checked, first, frames, slot)
        _, arguments, pending.received_bytes, pending.shared_received, _, _, _, _ = checked
        if arrays and not pending.dtype:
            pending.dtype = largest_of(arrays)
        return Reply(arrays, arguments.copy())

    # --- slots

    def _take_slot(self, deadline_ns: int) -> int:
        if self._next is not None:
            number, self._next = self._next, None
            return number
        self._release()
        while not self._free:
            if not any(each.given_up for each in self._in_flight.values()):
                raise Refused(f"{self.hello.slots} calls are under way; take the result of one first")
            self._receive_one(deadline_ns)
        return self._free.pop()

    def _release(self) -> None:
        if self._read_slots:
            self._free += self._read_slots
            self._read_slots.clear()

    def loan(self, dtype: DType, shape: tuple[int, ...]) -> Array:
        """Writable memory for an array of the next call. If it is in shared memory, which must have room for
        it, the call copies nothing.
        """
        if self._next is None:
            self._next = self._take_slot(now())
        slot = self._requests[self._next]
        size = byte_count(dtype, shape)
        data = None
        if slot is not None:
            if not self._lent:
                slot.begin(0)
            data = slot.lend(size)
        if data is None:
            data = memoryview(bytearray(size))
        else:
            self._lent = True
        return Array(dtype, shape, data)

    # --- records, and the end

    def _failed(self, pending: Pending, error: RpcError) -> None:
        if isinstance(error, CallTimeout):
            pending.given_up = True
        else:
            self._in_flight.pop(pending.number, None)
        if isinstance(error, (PeerGone, InvalidMessage)) and self._broken is None:
            self._broken = f"{error}; connect again"
            self._server_gone = isinstance(error, PeerGone)
        if self._observe is not None:
            self._record(pending, error.status)

    def _record(self, pending: Pending, status: int) -> None:
        end = now()
        prefix = pending.prefix
        there, ready = pending.there_ns or end, pending.ready_ns
        told = NOTHING_TOLD if prefix is None else prefix[6:]
        send, wait, queue, server = told_apart(pending.sent_ns - ready, there - ready, told)
        assert self._observe is not None
        self._observe(
            _new(CallRecord, (
                pending.number, pending.start_ns, end - pending.start_ns, pending.ready_ns - pending.start_ns,
                send, wait, queue, server, (pending.taken_ns or there) - there,
                end - (pending.read_ns or end),
                pending.sent_bytes, pending.received_bytes, pending.socket_sent, pending.socket_received,
                pending.shared_sent, pending.shared_received, status, pending.dtype, self.hello.client,
                pending.method,
            ))
        )  # fmt: skip

    def close(self) -> None:
        """Closes the connection. Calls in flight fail; arrays of replies in shared memory stay readable."""
        if self._broken is None:
            self._broken = "this client is closed"
            with contextlib.suppress(RpcError):
                self._link.send(header.message(Prefix(Kind.BYE, 0, self._epoch, 0, 0, 0, 0, 0), b""), [], 0)
        self._session.close()
        if self._server_gone and self.hello.process is not None:
            clear_after(self.hello.endpoint, self.hello.process, CLEAR_PATIENCE_S)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
