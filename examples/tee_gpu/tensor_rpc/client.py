"""The calling side. A client is not thread-safe: use one per thread."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from flagscale_perf.rpc.dtypes import DType
from flagscale_perf.rpc.records import CallRecord, Status
from flagscale_perf.spine.errors import did_you_mean
from tensor_rpc import wire
from tensor_rpc.endpoint import check_owner, machine, path_of, transport_of
from tensor_rpc.errors import CallTimeout, InvalidMessage, PeerGone, Refused, RpcError, error_of
from tensor_rpc.link import Link
from tensor_rpc.memory import Arena, open_arena
from tensor_rpc.options import Arguments, ClientOptions, Value
from tensor_rpc.wire import NOTHING_TOLD, Array, byte_count, told_apart

Observe = Callable[[CallRecord], None]
NO_ARGUMENTS: dict[str, Value] = {}
PINGS = 9
now = time.monotonic_ns


class Hello(NamedTuple):
    """What a client knows of its server after the handshake.

    Attributes:
        endpoint: the actual one.
        transport: "IPC" or "TCP".
        payload: "shared", "frames" or "msgpack": how arrays travel.
        process: the server's id; None on another machine.
        latency_ns: of a round trip without arrays, median of those measured when connecting.
        server: what it said of itself.
    """

    endpoint: str
    transport: str
    payload: str
    process: int | None
    latency_ns: int
    server: wire.Welcome


class Pending:
    """A call in flight."""

    answer: wire.Reply | wire.Failure | None = None
    told = NOTHING_TOLD
    slot = there_ns = taken_ns = read_ns = 0
    sent_bytes = received_bytes = socket_sent = socket_received = shared_sent = shared_received = dtype = 0
    given_up = False

    def __init__(self, client: Client, method: str, number: int, timeout_s: float) -> None:
        self._client = client
        self.method = method
        self.number = number
        self.frames: list[memoryview] = []
        self.start_ns = self.ready_ns = self.sent_ns = now()
        self.deadline_ns = self.start_ns + int(timeout_s * 1e9)

    def result(self) -> list[Array]:
        """Waits for the reply. Arrays in shared memory are overwritten by the next call of this client: copy
        what is to stay. Raises an `RpcError`; `RemoteFailure` if the method failed.
        """
        return self._client._result(self)


class Client:
    """A connection to a `Server`.

    Attributes:
        hello: what the server said when they met.
    """

    def __init__(self, options: ClientOptions, observe: Observe | None) -> None:
        """Use `connect`."""
        self._options = options
        self._observe = observe
        self._calls = 0
        self._in_flight: dict[int, Pending] = {}
        self._read_slots: list[int] = []  # of replies that were handed out
        self._lent: int | None = None  # slot of the next call, for which memory was lent
        self._broken: str | None = "not connected"
        self._arenas: list[Arena] = []
        self._link = Link(options.max_message_bytes)

    @classmethod
    def connect(cls, options: ClientOptions, observe: Observe | None = None) -> Client:
        """Connects to the server, waiting up to `connect_timeout_s` for it to appear. Raises `RpcError`.

        `observe` gets the record of each call, on the calling thread.
        """
        if transport_of(options.endpoint, options.allow_remote) == "TCP" and options.payload == "shared":
            raise Refused("payload='shared' needs an ipc endpoint: shared memory is of one machine")
        client = cls(options, observe)
        try:
            client._greet(now() + int(options.connect_timeout_s * 1e9))
        except BaseException:
            client.close()
            raise
        return client

    # --- the handshake

    def _greet(self, deadline_ns: int) -> None:
        options = self._options
        self._wait_for_file(deadline_ns)
        self._link.connect(options.endpoint)
        welcome = self._welcome(payload := self._wanted(), deadline_ns)
        if payload == "shared" and not self._map(welcome):
            welcome = self._welcome(payload := "frames", deadline_ns)
        self._same_machine = welcome.machine == machine() != ""
        self._link.settle(copies=payload == "msgpack")
        self._free = list(reversed(range(welcome.slots)))
        self._methods = {name: n for n, name in enumerate(welcome.methods)}
        self._broken = None
        self.hello = Hello(
            options.endpoint, transport_of(options.endpoint, True), payload,
            welcome.process if self._same_machine else None, self._latency(deadline_ns), welcome,
        )  # fmt: skip

    def _welcome(self, payload: str, deadline_ns: int) -> wire.Welcome:
        most = self._options.max_message_bytes
        greeting = wire.Greeting(wire.PROTOCOL, payload, most, machine(), os.getpid())
        try:
            welcome = self._exchange(greeting, deadline_ns)
        except CallTimeout:
            raise PeerGone(self._no_answer("the socket is there, and nothing speaks this protocol")) from None
        if isinstance(welcome, wire.Failure):
            raise _error_of("the connection", welcome)
        if not isinstance(welcome, wire.Welcome) or welcome.protocol != wire.PROTOCOL:
            raise Refused("the server speaks another protocol: use the same version on both sides")
        if not (welcome.device + welcome.dtype).isprintable():
            raise InvalidMessage("the server names a device or dtype that cannot be printed")
        return welcome

    def _wanted(self) -> str:
        if self._options.payload != "auto":
            return self._options.payload
        return "shared" if path_of(self._options.endpoint) else "frames"

    def _wait_for_file(self, deadline_ns: int) -> None:
        path = path_of(self._options.endpoint)
        while path is not None and not check_owner(path):
            if now() > deadline_ns:
                raise PeerGone(self._no_answer(f"there is no {path}"))
            time.sleep(0.01)

    def _no_answer(self, why: str) -> str:
        waited = f"within {self._options.connect_timeout_s} s"
        where = self._options.endpoint
        return f"no server answered at {where} {waited}: {why}; start it, or correct the endpoint"

    def _exchange(self, message: wire.Message, deadline_ns: int) -> wire.ToClient:
        self._link.send(wire.header(message), [], deadline_ns)
        return self._link.receive(deadline_ns)[0]

    def _map(self, welcome: wire.Welcome) -> bool:
        """Opens the shared memory; False where "auto" does without."""
        try:
            if welcome.requests is None or welcome.replies is None:
                raise Refused("the server has no shared memory: start it with arena_bytes above 0")
            for memory in (welcome.requests, welcome.replies):
                self._arenas.append(
                    open_arena(
                        welcome.process, memory.descriptor, memory.inode, welcome.slots, not self._arenas
                    )
                )
        except Refused:
            if self._options.payload == "shared":
                raise
            while self._arenas:
                self._arenas.pop().close()
        return bool(self._arenas)

    def _latency(self, deadline_ns: int) -> int:
        took = []
        for _ in range(PINGS):
            begin_ns = now()
            self._exchange(wire.Ping(), deadline_ns)
            took.append(now() - begin_ns)
        return int(median(took))

    # --- calls

    def call(
        self,
        method: str,
        arrays: Sequence[Array] = (),
        arguments: Arguments = NO_ARGUMENTS,
        timeout_s: float | None = None,
    ) -> list[Array]:
        """Calls and waits, as `Pending.result` does."""
        return self._result(self.submit(method, arrays, arguments, timeout_s))

    def submit(
        self,
        method: str,
        arrays: Sequence[Array] = (),
        arguments: Arguments = NO_ARGUMENTS,
        timeout_s: float | None = None,
    ) -> Pending:
        """Sends a call and returns at once; up to `hello.server.slots` may be in flight. The arrays must not
        change until the result has arrived. Raises an `RpcError`.
        """
        self._calls += 1
        limit_s = self._options.timeout_s if timeout_s is None else timeout_s
        pending = Pending(self, method, self._calls, limit_s)
        try:
            self._submit(pending, arrays, arguments)
        except RpcError as error:
            self._failed(pending, error)
            raise
        return pending

    def _submit(self, pending: Pending, arrays: Sequence[Array], arguments: Arguments) -> None:
        method = self._methods.get(pending.method)
        if method is None or self._broken is not None:
            raise self._why_not(pending.method)
        is_lent = self._lent is not None
        pending.slot = self._take_slot(pending.deadline_ns)
        slot = self._arenas[0].slots[pending.slot] if self._arenas else None
        if slot is not None and not is_lent:
            slot.begin()
        try:
            packed = wire.pack(arrays, slot, self._link.copies, self.hello.server.max_message_bytes)
            pending.sent_bytes, pending.shared_sent, pending.dtype = packed[2:]
            pending.ready_ns = pending.sent_ns = ready = now()
            mark = ready if self._same_machine else 0
            first = wire.header(
                wire.Call(pending.number, method, pending.slot, mark, packed.parts, dict(arguments))
            )
            pending.socket_sent = len(first) + sum(map(len, packed.frames))
            self._link.send(first, packed.frames, pending.deadline_ns)
        except BaseException:
            self._free.append(pending.slot)
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

    def _result(self, pending: Pending) -> list[Array]:
        try:
            while pending.answer is None:
                if pending.number not in self._in_flight:
                    raise Refused("the result of this call was taken already, or its time was over")
                self._take_one(pending.deadline_ns)
            answer, pending.answer = pending.answer, None
            arrays = self._read(pending, answer)
        except RpcError as error:
            self._failed(pending, error)
            raise
        self._record(pending, Status.OK)
        return arrays

    def _take_one(self, deadline_ns: int) -> None:
        answer, frames, there_ns, size = self._link.receive(deadline_ns)
        if isinstance(answer, wire.Failure) and not answer.number:
            raise _error_of("the connection", answer)
        if not isinstance(answer, wire.Reply | wire.Failure):
            return
        owner = self._in_flight.pop(answer.number, None)
        if owner is None:
            return
        if owner.given_up:  # only now does the server no longer use its slot
            self._free.append(owner.slot)
            return
        owner.answer, owner.told, owner.frames, owner.socket_received = answer, answer.told, frames, size
        owner.there_ns, owner.taken_ns = there_ns, now()

    def _read(self, pending: Pending, answer: wire.Reply | wire.Failure) -> list[Array]:
        pending.read_ns = now()
        self._read_slots.append(pending.slot)
        if isinstance(answer, wire.Failure):
            raise _error_of(pending.method, answer)
        slot = self._arenas[1].slots[pending.slot] if self._arenas else None
        found = wire.unpack(answer.parts, pending.frames, slot, self._options.max_message_bytes)
        arrays, pending.received_bytes, pending.shared_received, largest = found
        pending.dtype = pending.dtype or largest
        pending.frames = []
        return arrays

    # --- slots

    def _take_slot(self, deadline_ns: int) -> int:
        if self._lent is not None:
            number, self._lent = self._lent, None
            return number
        self._free += self._read_slots
        self._read_slots.clear()
        while not self._free:
            if not any(each.given_up for each in self._in_flight.values()):
                raise Refused(f"{self.hello.server.slots} calls are under way; take the result of one first")
            self._take_one(deadline_ns)
        return self._free.pop()

    def loan(self, dtype: DType, shape: tuple[int, ...]) -> Array:
        """Writable memory for an array of the next call. If it is in shared memory, which must have room for
        it, the call copies nothing.
        """
        size = byte_count(dtype, shape)
        data = None
        if self._arenas:
            is_first = self._lent is None
            self._lent = self._take_slot(now())
            slot = self._arenas[0].slots[self._lent]
            if is_first:
                slot.begin()
            data = slot.lend(size)
        return Array(dtype, shape, memoryview(bytearray(size)) if data is None else data)

    # --- records, and the end

    def _failed(self, pending: Pending, error: RpcError) -> None:
        if isinstance(error, CallTimeout):
            pending.given_up = True
        else:
            self._in_flight.pop(pending.number, None)
        if isinstance(error, PeerGone | InvalidMessage) and self._broken is None:
            self._broken = f"{error}; connect again"
        self._record(pending, error.status)

    def _record(self, pending: Pending, status: int) -> None:
        if self._observe is None:
            return
        end = now()
        there, ready = pending.there_ns or end, pending.ready_ns
        send, wait, queue, server = told_apart(pending.sent_ns - ready, there - ready, pending.told)
        self._observe(
            CallRecord(
                number=pending.number,
                start_ns=pending.start_ns,
                total_ns=end - pending.start_ns,
                serialize_ns=ready - pending.start_ns,
                send_ns=send,
                wait_ns=wait,
                queue_ns=queue,
                server_ns=server,
                receive_ns=(pending.taken_ns or there) - there,
                deserialize_ns=end - (pending.read_ns or end),
                sent_bytes=pending.sent_bytes,
                received_bytes=pending.received_bytes,
                socket_sent_bytes=pending.socket_sent,
                socket_received_bytes=pending.socket_received,
                shared_sent_bytes=pending.shared_sent,
                shared_received_bytes=pending.shared_received,
                status=status,
                dtype=pending.dtype,
                client=self.hello.server.client,
                method=pending.method,
            )
        )

    def close(self) -> None:
        """Closes the connection. Calls in flight fail; arrays of replies in shared memory stay readable."""
        if self._broken is None:
            self._broken = "this client is closed"
            with contextlib.suppress(RpcError):
                self._link.send(wire.header(wire.Bye()), [], 0)
        self._link.close()
        while self._arenas:
            self._arenas.pop().close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _error_of(what: str, failure: wire.Failure) -> RpcError:
    return error_of(what, failure.status, failure.kind, failure.text, failure.traceback)
