"""One client, as the server sees it, and what a method is given."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from flagscale_perf.rpc import header
from flagscale_perf.rpc.arrays import Array, DType, byte_count
from flagscale_perf.rpc.errors import Refused, RpcError
from flagscale_perf.rpc.header import Kind, Prefix
from flagscale_perf.rpc.link_zeromq import Message
from flagscale_perf.rpc.options import Received, Value
from flagscale_perf.rpc.packing import Sizes, Unpacker, first_frame, pack
from flagscale_perf.rpc.records import ServedRecord, Status

MOST_TRACEBACK = 16000
MOST_TEXT = 4000


class Request:
    """A call, as a method gets it.

    Attributes:
        method: its name.
        arrays: views of what came, valid until the method returns. The caller could change those in shared
            memory while it runs: values that must be right, indices say, are copied first and then checked.
        arguments: by name.
        client: number of the connection.
        results: goes back beside the arrays, as `Reply.arguments`.
    """

    def __init__(
        self, method: str, arrays: list[Array], arguments: Mapping[str, Received], client: int
    ) -> None:
        self.method = method
        self.arrays = arrays
        self.arguments = arguments
        self.client = client
        self.results: dict[str, Value] = {}

    def reply(self, dtype: DType, shape: tuple[int, ...]) -> Array:
        """Writable memory for a result; in shared memory, where there is some, it is not copied again."""
        return Array(dtype, shape, memoryview(bytearray(byte_count(dtype, shape))))


Handler = Callable[[Request], Sequence[Array]]
Send = Callable[[bytes, list[memoryview]], bool]


@dataclass
class Connection:
    """What the server keeps of a client."""

    number: int
    send: Send
    sizes: Sizes
    same_clock: bool
    last_call: int = 0


@dataclass
class Served:
    """The marks of one call, for its record."""

    begun_ns: int
    queue_ns: int = 0
    read_ns: int = 0
    compute_ns: int = 0
    write_ns: int = 0
    send_ns: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    status: Status = Status.OK
    method: str = ""


@dataclass
class Caller:
    """Carries out calls by the methods of a server."""

    methods: Mapping[str, Handler]
    epoch: int
    unpacker: Unpacker
    observe: Callable[[ServedRecord], None] | None
    served: int = 0
    free_since_ns: int = field(default_factory=time.monotonic_ns)

    def __post_init__(self) -> None:
        self._table = list(self.methods.items())

    def call(self, connection: Connection, prefix: Prefix, message: Message, begun_ns: int) -> bool:
        """Answers a call; False where the answer could not be delivered."""
        marks = Served(begun_ns)
        if connection.same_clock:
            marks.queue_ns = _queued(prefix.first_ns, self.free_since_ns, begun_ns)
        try:
            first, frames = self._carry_out(connection, prefix, message, marks)
        except RpcError as error:
            marks.status = error.status
            first, frames = failure(self._answer(prefix, marks), error), []
        except Exception as error:  # a method may raise anything, and its caller must hear of it
            marks.status = Status.FAILED
            first, frames = failure(self._answer(prefix, marks), error), []
        ready = time.monotonic_ns()
        delivered = connection.send(first, frames)
        self.free_since_ns = end = time.monotonic_ns()
        self.served += 1
        if self.observe is not None:
            self.observe(
                ServedRecord(
                    self.served, connection.number, prefix.call, begun_ns - marks.queue_ns,
                    end - begun_ns + marks.queue_ns, marks.queue_ns, marks.read_ns, marks.compute_ns,
                    marks.write_ns, end - ready, marks.received_bytes, marks.sent_bytes,
                    marks.status if delivered else Status.PEER_GONE, marks.method,
                )
            )  # fmt: skip
        return delivered

    def _carry_out(
        self, connection: Connection, prefix: Prefix, message: Message, marks: Served
    ) -> tuple[bytes, list[memoryview]]:
        if prefix.code >= len(self._table):
            raise Refused(f"method {prefix.code} of {len(self._table)}")
        if prefix.call <= connection.last_call:
            raise Refused(f"call {prefix.call} after call {connection.last_call}")
        connection.last_call = prefix.call
        marks.method, handler = self._table[prefix.code]
        checked = self.unpacker.body(message.first, prefix)
        arrays = self.unpacker.arrays(checked, message.first, message.frames, None)
        marks.received_bytes = checked.total
        request = Request(marks.method, arrays, checked.arguments, connection.number)
        read = time.monotonic_ns()
        marks.read_ns = read - marks.begun_ns
        results = handler(request)
        computed = time.monotonic_ns()
        marks.compute_ns = computed - read
        packed = pack(results, request.results, connection.sizes, None)
        marks.sent_bytes = packed.total
        marks.write_ns = time.monotonic_ns() - computed
        answer = header.pack_prefix(self._answer(prefix, marks, Kind.REPLY, len(packed.body)))
        return first_frame(answer, packed), packed.frames

    def _answer(self, prefix: Prefix, marks: Served, kind: Kind = Kind.FAILURE, size: int = 0) -> Prefix:
        took = time.monotonic_ns() - marks.begun_ns
        return Prefix(kind, size, self.epoch, prefix.call, marks.status, prefix.slot, marks.queue_ns, took)


def _queued(sent_ns: int, free_since_ns: int, begun_ns: int) -> int:
    """How long a call waited for others: it was sent while the server was busy, which came to it at
    `free_since_ns` at the earliest. What the caller claims is not believed beyond an hour.
    """
    return begun_ns - sent_ns if begun_ns - 3600 * 10**9 < sent_ns < free_since_ns else 0


def failure(prefix: Prefix, error: Exception) -> bytes:
    """A FAILURE: what went wrong, with the traceback where a method failed."""
    told = "" if isinstance(error, RpcError) else "".join(traceback.format_exception(error))
    body = header.encode((type(error).__name__[:200], str(error)[:MOST_TEXT], told[-MOST_TRACEBACK:]))
    return header.message(prefix, body)
