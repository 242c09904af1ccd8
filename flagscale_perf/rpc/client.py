"""The calling side. Not for several threads: one client a thread."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NamedTuple

from flagscale_perf.rpc import header
from flagscale_perf.rpc.arrays import Array, DType, byte_count
from flagscale_perf.rpc.endpoint import client_endpoint, clock_domain, transport_of
from flagscale_perf.rpc.errors import CallTimeout, InvalidMessage, PeerGone, Refused, RemoteFailure, RpcError
from flagscale_perf.rpc.header import Kind, Prefix
from flagscale_perf.rpc.link_zeromq import ClientLink, Message
from flagscale_perf.rpc.options import Arguments, ClientOptions, Hello, Received, Value
from flagscale_perf.rpc.packing import Sizes, Unpacker, first_frame, pack
from flagscale_perf.rpc.records import CallRecord, Status
from flagscale_perf.spine.errors import did_you_mean

Observe = Callable[[CallRecord], None]
NO_ARGUMENTS: dict[str, Value] = {}
PINGS = 9


class Reply(NamedTuple):
    """What a call returned.

    Attributes:
        arrays: those in shared memory are overwritten by the next call of this client; copy what is to stay.
        arguments: what the method said beside them.
    """

    arrays: list[Array]
    arguments: dict[str, Received]

    def release(self) -> None:
        """Its place in shared memory may be used again from now on."""


class Pending:
    """A call under way."""

    def __init__(self, client: Client, method: str, deadline_ns: int) -> None:
        self.client = client
        self.method = method
        self.deadline_ns = deadline_ns
        self.number = 0
        self.message: Message | None = None
        self.prefix: Prefix | None = None
        self.start_ns = self.ready_ns = self.sent_ns = self.there_ns = self.taken_ns = 0
        self.sent_bytes = self.received_bytes = self.socket_sent = self.socket_received = 0
        self.shared_sent = self.shared_received = 0
        self.dtype = 0

    def result(self) -> Reply:
        """Waits for the reply. Raises an `RpcError`, `RemoteFailure` where the method failed."""
        return self.client._result(self)


class Client:
    """A connection to a `Server`."""

    hello: Hello

    def __init__(self, options: ClientOptions, observe: Observe | None = None) -> None:
        self._options = options
        self._observe = observe
        self._calls = 0
        self._in_flight: dict[int, Pending] = {}
        self._broken: str | None = None
        self._epoch = 0
        self._unpacker = Unpacker(options.max_message_bytes)
        self._endpoint = client_endpoint(options)
        self._link = ClientLink(self._endpoint, options.max_message_bytes)

    @classmethod
    def connect(cls, options: ClientOptions, observe: Observe | None = None) -> Client:
        """Meets the server, waiting `connect_timeout_s` for it to be there. Raises `RpcError`.

        `observe` gets the record of each call, on the calling thread.
        """
        client = cls(options, observe)
        try:
            client._greet()
        except BaseException:
            client.close()
            raise
        return client

    def _greet(self) -> None:
        begun = time.monotonic_ns()
        deadline = begun + int(self._options.connect_timeout_s * 1e9)
        body = header.HelloBody(
            header.PROTOCOL, header.BYTE_ORDER, self._options.max_message_bytes, False, False, False,
            self._options.model, clock_domain(),
        )  # fmt: skip
        prefix, first = self._exchange(Kind.HELLO, header.encode(body), deadline)
        if prefix.kind != Kind.WELCOME:
            raise InvalidMessage(f"the server answered HELLO with a message of kind {prefix.kind}")
        welcome = header.WELCOME.decode(first, prefix)
        self._epoch = prefix.epoch
        self._link.greeted = True
        self._same_clock = welcome.same_clock
        self._methods = {name: n for n, name in enumerate(welcome.methods)}
        self._sizes = Sizes(4096, 2**62, self._link.carries_frames, welcome.max_message_bytes)
        latency = self._measure_latency(deadline)
        self.hello = Hello(
            self._endpoint, transport_of(self._endpoint), "frames", self._link.name, welcome.device,
            welcome.dtype, welcome.model, welcome.description, welcome.methods, welcome.max_message_bytes,
            0, welcome.slots, self._epoch, welcome.client, welcome.process, latency,
            self._sizes.inline_bytes, self._sizes.arena_from_bytes, time.monotonic_ns() - begun,
        )  # fmt: skip

    def _exchange(self, kind: Kind, body: bytes, deadline_ns: int) -> tuple[Prefix, bytes | memoryview]:
        """Sends a message that is no call and returns what comes back."""
        prefix = Prefix(kind, 0, self._epoch, 0, 0, 0, 0, 0)
        try:
            self._link.send(header.message(prefix, body), [], deadline_ns)
            first, _ = self._link.receive(deadline_ns)
        except CallTimeout:
            raise PeerGone(
                f"no server answers at {self._endpoint}: start it, or correct the endpoint"
            ) from None
        answer = header.read_prefix(first)
        if answer.kind == Kind.FAILURE:
            raise _failure("the connection", answer, first)
        return answer, first

    def _measure_latency(self, deadline_ns: int) -> int:
        times = []
        body = header.encode(((), NO_ARGUMENTS))
        for _ in range(PINGS):
            begun = time.monotonic_ns()
            self._exchange(Kind.PING, body, deadline_ns)
            times.append(time.monotonic_ns() - begun)
        return int(statistics.median(times))

    def call(
        self,
        method: str,
        arrays: Sequence[Array] = (),
        arguments: Arguments = NO_ARGUMENTS,
        timeout_s: float | None = None,
    ) -> Reply:
        """Calls and waits. Raises an `RpcError`: of `errors`, the one that says what happened."""
        return self._result(self.submit(method, arrays, arguments, timeout_s))

    def submit(
        self,
        method: str,
        arrays: Sequence[Array] = (),
        arguments: Arguments = NO_ARGUMENTS,
        timeout_s: float | None = None,
    ) -> Pending:
        """Sends a call and returns at once. The arrays must not change until its result is there."""
        start = time.monotonic_ns()
        limit = self._options.timeout_s if timeout_s is None else timeout_s
        pending = Pending(self, method, start + int(limit * 1e9))
        pending.start_ns = pending.ready_ns = pending.sent_ns = start
        try:
            self._send(pending, arrays, arguments)
        except RpcError as error:
            self._record_failure(pending, error)
            raise
        return pending

    def _send(self, pending: Pending, arrays: Sequence[Array], arguments: Arguments) -> None:
        self._calls += 1
        pending.number = self._calls
        if self._broken is not None:
            raise PeerGone(self._broken)
        method = self._methods.get(pending.method)
        if method is None:
            raise Refused(_unknown(pending.method, self._methods))
        if len(self._in_flight) >= self.hello.slots:
            raise Refused(f"{len(self._in_flight)} calls are under way; take the result of one first")
        packed = pack(arrays, arguments, self._sizes, None)
        pending.sent_bytes, pending.shared_sent = packed.total, packed.shared
        if arrays:
            pending.dtype = _largest(arrays)
        body = packed.body
        sent_at = time.monotonic_ns() if self._same_clock else 0
        prefix = header.PREFIX.pack(
            header.MAGIC, header.PROTOCOL, Kind.CALL, len(body), self._epoch, pending.number, method, 0, 0,
            sent_at, 0,
        )  # fmt: skip
        first = first_frame(prefix, packed)
        pending.socket_sent = len(first) + sum(map(len, packed.frames))
        pending.ready_ns = time.monotonic_ns()
        self._link.send(first, packed.frames, pending.deadline_ns)
        pending.sent_ns = time.monotonic_ns()
        self._in_flight[pending.number] = pending

    def _result(self, pending: Pending) -> Reply:
        try:
            if pending.message is None:
                self._receive(pending)
            reply = self._read(pending)
        except RpcError as error:
            if isinstance(error, PeerGone):
                self._broken = str(error)
            self._in_flight.pop(pending.number, None)
            self._record_failure(pending, error)
            raise
        if self._observe is not None:
            self._record(pending, Status.OK)
        return reply

    def _receive(self, pending: Pending) -> None:
        while pending.message is None:
            message = self._link.receive(pending.deadline_ns)
            there = time.monotonic_ns()
            prefix = header.read_prefix(message.first)
            if prefix.kind == Kind.FAILURE and not prefix.call:
                raise _failure(pending.method, prefix, message.first)
            owner = self._in_flight.pop(prefix.call, None)
            if owner is not None:  # otherwise the late reply of a call whose time was over
                owner.message, owner.prefix, owner.there_ns = message, prefix, there

    def _read(self, pending: Pending) -> Reply:
        message, prefix = pending.message, pending.prefix
        assert message is not None and prefix is not None
        pending.taken_ns = time.monotonic_ns()
        pending.socket_received = len(message.first) + sum(map(len, message.frames))
        if prefix.kind != Kind.REPLY:
            if prefix.kind == Kind.FAILURE:
                raise _failure(pending.method, prefix, message.first)
            raise InvalidMessage(f"the server answered a call with a message of kind {prefix.kind}")
        if prefix.epoch != self._epoch:
            raise PeerGone(
                "the server was started again, and knows nothing of what went before: connect again"
            )
        checked = self._unpacker.body(message.first, prefix)
        arrays = self._unpacker.arrays(checked, message.first, message.frames, None)
        pending.received_bytes, pending.shared_received = checked.total, checked.shared
        if not pending.dtype and arrays:
            pending.dtype = _largest(arrays)
        return Reply(arrays, checked.arguments)

    def _record(self, pending: Pending, status: Status) -> None:
        end = time.monotonic_ns()
        prefix = pending.prefix
        queue = server = None
        there = pending.there_ns or end
        taken = pending.taken_ns or there
        wait = there - pending.sent_ns
        if prefix is not None and prefix.kind in (Kind.REPLY, Kind.FAILURE) and prefix.call:
            server = min(prefix.second_ns, wait)
            queue = min(prefix.first_ns, wait - server) if self._same_clock else None
            wait -= server + (queue or 0)
        assert self._observe is not None
        self._observe(
            CallRecord(
                pending.number, pending.start_ns, end - pending.start_ns, pending.ready_ns - pending.start_ns,
                pending.sent_ns - pending.ready_ns, wait, queue, server, taken - there, end - taken,
                pending.sent_bytes, pending.received_bytes, pending.socket_sent, pending.socket_received,
                pending.shared_sent, pending.shared_received, status, pending.dtype, self.hello.client,
                pending.method,
            )
        )  # fmt: skip

    def _record_failure(self, pending: Pending, error: RpcError) -> None:
        if self._observe is not None:
            self._record(pending, error.status)

    def loan(self, dtype: DType, shape: tuple[int, ...]) -> Array:
        """Writable memory for an array of the next call. Where it lies in shared memory, nothing is copied
        any more.
        """
        return Array(dtype, shape, memoryview(bytearray(byte_count(dtype, shape))))

    def close(self) -> None:
        """Ends the connection. Replies that lie in shared memory cannot be used afterwards."""
        if self._epoch and self._broken is None:
            with contextlib.suppress(RpcError):
                self._link.send(header.message(Prefix(Kind.BYE, 0, self._epoch, 0, 0, 0, 0, 0), b""), [], 0)
        self._broken = "this client is closed"
        self._link.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _largest(arrays: Sequence[Array]) -> int:
    return int(arrays[0].dtype if len(arrays) == 1 else max(arrays, key=lambda each: len(each.data)).dtype)


def _unknown(method: str, known: dict[str, int]) -> str:
    return f"the server has no method {method!r}; it has {', '.join(known)}{did_you_mean(method, known)}"


def _failure(what: str, prefix: Prefix, first: bytes | memoryview) -> RpcError:
    """The error that a FAILURE stands for."""
    body = header.FAILURE.decode(first, prefix)
    if prefix.code == Status.FAILED:
        return RemoteFailure(what, body.kind, body.text, body.traceback)
    if prefix.code == Status.PEER_GONE:
        return PeerGone(body.text)
    return Refused(f"{what} was refused by the server: {body.text}")
