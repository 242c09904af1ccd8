"""One client as the server sees it, and the request that a method receives."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from flagscale_perf.rpc.arrays import Array, DType, byte_count
from flagscale_perf.rpc.errors import Refused, RpcError
from flagscale_perf.rpc.options import Received, Value
from flagscale_perf.rpc.records import ServedRecord, Status
from flagscale_perf.rpc.transport import header
from flagscale_perf.rpc.transport.handshake import Shared
from flagscale_perf.rpc.transport.header import MAGIC, PREFIX, PROTOCOL, Kind, Prefix
from flagscale_perf.rpc.transport.link_unix import UnixLink
from flagscale_perf.rpc.transport.link_zeromq import Message
from flagscale_perf.rpc.transport.packing import Packer, Slot, Unpacker, first_frame

MOST_TRACEBACK = 16000
MOST_TEXT = 4000
HOUR_NS = 3600 * 10**9
REPLY, FAILURE = int(Kind.REPLY), int(Kind.FAILURE)
_pack_prefix = PREFIX.pack
now = time.monotonic_ns
_new = tuple.__new__  # half the time of a NamedTuple's own constructor


class Request:
    """A call, as passed to a method.

    Attributes:
        method: its name.
        arrays: views of what came, valid until the method returns. The caller could change those in shared
            memory while it runs: values that must be right, indices say, are copied first and then checked.
        arguments: by name.
        client: number of the connection.
        results: goes back beside the arrays, as `Reply.arguments`.
    """

    __slots__ = ("_slot", "arguments", "arrays", "client", "method", "results")

    def __init__(
        self,
        method: str,
        arrays: list[Array],
        arguments: Mapping[str, Received],
        client: int,
        slot: Slot | None = None,
    ) -> None:
        self.method = method
        self.arrays = arrays
        self.arguments = arguments
        self.client = client
        self.results: dict[str, Value] = {}
        self._slot = slot

    def reply(self, dtype: DType, shape: tuple[int, ...]) -> Array:
        """Writable memory for a result. If it is in shared memory, which must have room for it, replying
        copies nothing.
        """
        size = byte_count(dtype, shape)
        data = self._slot.lend(size) if self._slot is not None else None
        return Array(dtype, shape, memoryview(bytearray(size)) if data is None else data)


Handler = Callable[[Request], Sequence[Array]]
Send = Callable[[bytes, list[memoryview]], bool]


@dataclass
class Connection:
    """The server's state of one client.

    Attributes:
        number: of the connection.
        who: its identity at ZeroMQ.
        token: what it must show on the unix socket.
        wants_shared, wants_unix, sealed: what it asked for.
        packer: packs its replies.
        slots: how many calls may be under way.
        shared: its shared memory.
        side: its unix socket, once it is there.
    """

    number: int
    who: bytes
    token: bytes
    wants_shared: bool
    wants_unix: bool
    sealed: bool
    packer: Packer
    slots: int
    same_clock: bool
    last_call: int = 0
    shared: Shared = field(default_factory=Shared)
    side: UnixLink | None = None

    def slot_of(self, number: int) -> tuple[Slot | None, Slot | None]:
        """The slot for the arrays of a call and its reply. Raises `Refused`."""
        if number >= self.slots:
            raise Refused(f"slot {number} of {self.slots}")
        if not self.shared.requests:
            return None, None
        return self.shared.requests[number], self.shared.replies[number]

    def close(self) -> None:
        """Frees its memory and closes its socket."""
        self.shared.close()
        if self.side is not None:
            self.side.close()


class _Marks:
    """Times within one call, for its record; 0 for those not reached."""

    after_ns = queue_ns = read_ns = compute_ns = write_ns = received_bytes = sent_bytes = status = 0
    method = ""

    def __init__(self, begun_ns: int) -> None:
        self.begun_ns = begun_ns


class Caller:
    """Runs calls by a server's methods."""

    def __init__(
        self,
        methods: Mapping[str, Handler],
        epoch: int,
        unpacker: Unpacker,
        observe: Callable[[ServedRecord], None] | None,
    ) -> None:
        self.methods = tuple(methods)
        self._table = list(methods.items())
        self._epoch = epoch
        self._unpacker = unpacker
        self._observe = observe
        self._served = 0
        self._free_since_ns = now()

    def ping(self, connection: Connection, prefix: Prefix, message: Message) -> bytes:
        """The answer to a PING, whose arrays are checked like those of a call."""
        slot, _ = connection.slot_of(prefix.slot)
        if slot is not None:
            slot.begin(0)
        checked = self._unpacker.body(message.first, prefix)
        self._unpacker.arrays(checked, message.first, message.frames, slot)
        return header.message(prefix, header.EMPTY_BODY)

    def call(
        self, connection: Connection, send: Send, prefix: Prefix, message: Message, begun_ns: int
    ) -> bool:
        """Answers a call; False if the answer could not be delivered."""
        marks = _Marks(begun_ns)
        sent_ns, free_since_ns = prefix[6], self._free_since_ns
        # A call waited for others since it was sent, until the server had answered the one before. What the
        # caller claims is not believed beyond an hour.
        if connection.same_clock and begun_ns - HOUR_NS < sent_ns < begun_ns:
            marks.after_ns = begun_ns - sent_ns
            marks.queue_ns = max(0, free_since_ns - sent_ns)
        try:
            first, frames = self._carry_out(connection, prefix, message, marks)
        except Exception as error:  # a method may raise anything; it is reported to the caller
            marks.status = error.status if isinstance(error, RpcError) else Status.FAILED
            body = failure_body(error)
            first, frames = self._prefix(prefix, marks, FAILURE, len(body)) + body, []
        ready = now()
        delivered = send(first, frames)
        self._free_since_ns = end = now()
        self._served += 1
        if self._observe is not None:
            self._observe(
                _new(ServedRecord, (
                    self._served, connection.number, prefix.call, begun_ns - marks.queue_ns,
                    end - begun_ns + marks.queue_ns, marks.queue_ns, marks.read_ns, marks.compute_ns,
                    marks.write_ns, end - ready, marks.received_bytes, marks.sent_bytes,
                    marks.status if delivered else Status.PEER_GONE, marks.method,
                ))
            )  # fmt: skip
        return delivered

    def _carry_out(
        self, connection: Connection, prefix: Prefix, message: Message, marks: _Marks
    ) -> tuple[bytes, list[memoryview]]:
        _, _, _, call, code, slot_number, *_ = prefix
        if code >= len(self._table):
            raise Refused(f"method {code} of {len(self._table)}")
        marks.method, handler = self._table[code]
        if call <= connection.last_call:
            raise Refused(f"call {call} after call {connection.last_call}")
        connection.last_call = call
        slot, reply_slot = connection.slot_of(slot_number)
        if slot is not None and reply_slot is not None:
            if not slot.plain:
                slot.begin(call)
            reply_slot.begin(call)
        first, frames, _ = message
        checked = self._unpacker.body(first, prefix)
        _, arguments, marks.received_bytes, shared, _, _, _, _ = checked
        if connection.sealed and marks.received_bytes != shared:
            raise Refused("an array that is not encrypted, on a sealed connection")
        arrays = self._unpacker.arrays(checked, first, frames, slot)
        request = Request(marks.method, arrays, arguments.copy(), connection.number, reply_slot)
        read = now()
        marks.read_ns = read - marks.begun_ns
        results = handler(request)
        computed = now()
        marks.compute_ns = computed - read
        packed = connection.packer.pack(results, request.results, reply_slot)
        marks.sent_bytes = packed.total
        marks.write_ns = now() - computed
        return first_frame(self._prefix(prefix, marks, REPLY, packed.body_bytes), packed), packed.frames

    def _prefix(self, asked: Prefix, marks: _Marks, kind: int, size: int) -> bytes:
        _, _, _, call, _, slot, *_ = asked
        return _pack_prefix(
            MAGIC, PROTOCOL, kind, size, self._epoch, call, marks.status, slot, 0, marks.queue_ns,
            now() - marks.begun_ns, marks.after_ns,
        )  # fmt: skip


def failure_body(error: Exception) -> bytes:
    """The body of a FAILURE: what went wrong, with the traceback if a method failed."""
    told = "" if isinstance(error, RpcError) else "".join(traceback.format_exception(error))
    return header.encode((type(error).__name__[:200], str(error)[:MOST_TEXT], told[-MOST_TRACEBACK:]))
