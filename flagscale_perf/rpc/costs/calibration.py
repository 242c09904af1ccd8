"""Measures what calls cost on this machine: every transport, by bytes and direction, interleaved in rounds so
that other load on the machine affects all alike.
"""

from __future__ import annotations

import mmap
import os
import platform
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from flagscale_perf.rpc.arrays import Array, DType
from flagscale_perf.rpc.costs.baseline import BaselineClient
from flagscale_perf.rpc.costs.model import Calibration, Curve, MemoryCost, PathCost
from flagscale_perf.rpc.costs.partner import EXCHANGE, start
from flagscale_perf.rpc.options import Arguments, ClientOptions, Control, Payload
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.rpc.transport.client import Client, Reply
from flagscale_perf.spine.clock import NS_PER_MS, monotonic_ns

KIB, MIB = 1024, 1024**2
LADDER = tuple(n * KIB for n in (1, 16, 64, 256)) + tuple(n * MIB for n in (1, 2, 4, 8, 16, 32, 64, 128))
_MIXED_FROM = 512 * KIB  # larger calls of real programs rarely find their data still in the caches
_CYCLES, _MOST_CYCLES = 2, 10  # of the sizes that are mixed, in a round
_CYCLE_BYTES = 64 * MIB  # so much of the largest size in all cycles of a round, within these
_CELL_NS = 3 * NS_PER_MS  # a smaller size is called this long in a round, and at least once
_MOST_CALLS = 30
_MARGIN = 65536  # above the largest size, for what else is in a message

Measure = Callable[[int], float]


class Way(NamedTuple):
    """One way of carrying calls; `payload` "msgpack" is the baseline."""

    name: str
    transport: str
    payload: Payload
    control: Control = "zeromq"


WAYS = (
    Way("msgpack over ipc", "IPC", "msgpack"),
    Way("msgpack over tcp", "TCP", "msgpack"),
    Way("frames over ipc", "IPC", "frames"),
    Way("frames over tcp", "TCP", "frames"),
    Way("shared memory, ZeroMQ", "IPC", "shared"),
    Way("shared memory, unix", "IPC", "shared", "unix"),
)


class Caller(Protocol):
    """The common interface of `Client` and `BaselineClient`."""

    def call(self, method: str, arrays: Sequence[Array], arguments: Arguments) -> Reply:
        """Calls and waits."""

    def close(self) -> None:
        """Closes the connection."""


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    Attributes:
        sizes: bytes of a message, rising.
        rounds: each measures every size of every way.
        ways: what is measured.
    """

    sizes: tuple[int, ...] = LADDER[:8]
    rounds: int = 3
    ways: Sequence[Way] = WAYS

    @classmethod
    def up_to(cls, largest_bytes: int, rounds: int = 3, ways: Sequence[Way] = WAYS) -> Plan:
        """The plan with sizes for traffic whose largest message is this large."""
        sizes = tuple(size for size in LADDER if size < largest_bytes)
        return cls((*sizes, max(largest_bytes, LADDER[0])), rounds, ways)

    @property
    def largest_bytes(self) -> int:
        """Size of the largest message."""
        return self.sizes[-1]


@dataclass
class Times:
    """Times of one transport: the medians of each round, by size, in nanoseconds."""

    idle: list[float] = field(default_factory=list)
    there: dict[int, list[float]] = field(default_factory=dict)
    back: dict[int, list[float]] = field(default_factory=dict)
    serialize: dict[int, list[float]] = field(default_factory=dict)
    deserialize: dict[int, list[float]] = field(default_factory=dict)

    def curve(self, times: dict[int, list[float]], beyond_ns: float = 0.0) -> Curve:
        """Medians over the rounds, less the fixed cost of a call."""
        return Curve.through({size: max(0.0, statistics.median(t) - beyond_ns) for size, t in times.items()})


class Line:
    """A connection to a partner, and its measured cost.

    Attributes:
        times: what `measure` has found, and `cost` goes by; another one for another plan.
    """

    def __init__(self, way: Way, endpoint: str, largest_bytes: int) -> None:
        self.way = way
        self._records: list[CallRecord] = []
        options = ClientOptions(
            endpoint=endpoint, payload=way.payload, control=way.control, max_message_bytes=largest_bytes
        )
        self.caller: Caller = (
            BaselineClient(options, self._records.append)
            if way.payload == "msgpack"
            else Client.connect(options, self._records.append)
        )
        self.times = Times()

    def is_as_asked(self) -> bool:
        """Whether calls really use this transport: a server without shared memory, for example, offers
        another.
        """
        if not isinstance(self.caller, Client):
            return True
        hello = self.caller.hello
        return (hello.transport, hello.payload, hello.control) == self.way[1:]

    def exchange(self, sent: memoryview, received_bytes: int) -> CallRecord:
        """One call that sends and receives this many bytes."""
        arrays = [Array(DType.UINT8, (len(sent),), sent)] if len(sent) else []
        self._records.clear()
        self.caller.call(EXCHANGE, arrays, {"bytes": received_bytes})
        return self._records[-1]

    def measure(self, source: memoryview, sizes: Sequence[int]) -> None:
        """One round in both directions: small sizes repeatedly, large ones in turn, as programs send them, so
        that caches and the allocator do no better here than there.
        """
        self.times.idle.append(_median([r.total_ns for r in self._some(source[:0], 0)]))
        for size in sizes:
            if size < _MIXED_FROM:
                self._note(size, self._some(source[:size], 0), self._some(source[:0], size))
        large = [size for size in sizes if size >= _MIXED_FROM]
        # The largest, the smallest, the second largest ...: no size finds what the one before it left.
        large = [large[-1 - n // 2] if n % 2 == 0 else large[n // 2] for n in range(len(large))]
        there: dict[int, list[CallRecord]] = {size: [] for size in large}
        back: dict[int, list[CallRecord]] = {size: [] for size in large}
        for _ in range(_cycles(large)):
            for size in large:
                there[size].append(self.exchange(source[:size], 0))
                back[size].append(self.exchange(source[:0], size))
        for size in large:
            self._note(size, there[size], back[size])

    def _note(self, size: int, there: Sequence[CallRecord], back: Sequence[CallRecord]) -> None:
        times = self.times
        for into, found in (
            (times.there, [r.total_ns for r in there]),
            (times.back, [r.total_ns for r in back]),
            (times.serialize, [r.serialize_ns for r in there]),
            (times.deserialize, [r.deserialize_ns for r in back]),
        ):
            into.setdefault(size, []).append(_median(found))

    def _some(self, sent: memoryview, received_bytes: int) -> list[CallRecord]:
        """Times calls; the first is not counted, as its memory is new."""
        self.exchange(sent, received_bytes)
        records, end = [self.exchange(sent, received_bytes)], monotonic_ns() + _CELL_NS
        while monotonic_ns() < end and len(records) < _MOST_CALLS:
            records.append(self.exchange(sent, received_bytes))
        return records

    def replay(self, source: memoryview, calls: Iterable[tuple[int, int]]) -> int:
        """Nanoseconds that calls of these sizes (bytes sent and received) take one after another."""
        begin = monotonic_ns()
        for sent, received in calls:
            self.exchange(source[:sent], received)
        return monotonic_ns() - begin

    def cost(self) -> PathCost:
        """The cost by the rounds so far."""
        times, idle = self.times, statistics.median(self.times.idle)
        return PathCost(
            *self.way,
            round_trip_ns=idle,
            there=times.curve(times.there, idle),
            back=times.curve(times.back, idle),
            serialize=times.curve(times.serialize),
            deserialize=times.curve(times.deserialize),
        )


class Memory:
    """Times copies of memory."""

    def __init__(self, largest_bytes: int) -> None:
        self.source = memoryview(bytearray(b"\x5a") * largest_bytes)
        self._target = memoryview(bytearray(b"\xa5") * largest_bytes)
        self._warm: dict[int, list[float]] = {}
        self._fresh: dict[int, list[float]] = {}

    def warm_ns(self, size: int) -> float:
        """One copy into memory that is already in use."""
        begin = monotonic_ns()
        self._target[:size] = self.source[:size]
        return monotonic_ns() - begin

    def fresh_ns(self, size: int) -> float:
        """One copy into pages that are new to the process."""
        begin = monotonic_ns()
        with mmap.mmap(-1, size) as pages, memoryview(pages) as target:
            target[:] = self.source[:size]
            return monotonic_ns() - begin

    def measure(self, size: int) -> None:
        """One round of one size."""
        for measure, times in ((self.warm_ns, self._warm), (self.fresh_ns, self._fresh)):
            times.setdefault(size, []).append(_median(_repeated(measure, size)))

    def cost(self) -> MemoryCost:
        """The cost by the rounds so far."""
        return MemoryCost(
            *(Curve.through({n: _median(t) for n, t in each.items()}) for each in (self._warm, self._fresh))
        )


@contextmanager
def connected(plan: Plan) -> Iterator[list[Line]]:
    """A line for each transport, with the processes at their other ends."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rpc_calibration_")))
        endpoints: dict[tuple[str, str], str] = {}
        lines = []
        largest = plan.largest_bytes + _MARGIN
        for way in plan.ways:
            kind = "baseline" if way.payload == "msgpack" else "server"
            if (kind, way.transport) not in endpoints:
                asked = "tcp://127.0.0.1:*" if way.transport == "TCP" else f"ipc://{directory / kind}.ipc"
                endpoints[kind, way.transport] = stack.enter_context(start(kind, asked, largest))
            line = Line(way, endpoints[kind, way.transport], largest)
            stack.callback(line.caller.close)
            if line.is_as_asked():
                lines.append(line)
        yield lines


def calibrate(plan: Plan) -> Calibration:
    """Measures everything; takes some seconds."""
    memory = Memory(plan.largest_bytes)
    with connected(plan) as lines:
        for line in lines:  # memory that is used for the first time costs more
            line.exchange(memory.source, plan.largest_bytes)
        for _ in range(plan.rounds):
            for size in plan.sizes:
                memory.measure(size)
            for line in lines:
                line.measure(memory.source, plan.sizes)
        return Calibration(machine(), plan.rounds, memory.cost(), [line.cost() for line in lines])


def copies_ns(memory: Memory, calls: Iterable[tuple[int, int]]) -> float:
    """Nanoseconds for one copy of the same bytes."""
    return sum(memory.warm_ns(size) for call in calls for size in call if size)


def machine() -> str:
    """A one-line description of this machine."""
    load = os.getloadavg()[0]
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load:.1f}"
    )


def _cycles(sizes: Sequence[int]) -> int:
    """Number of repetitions: calls of a few MiB are quick and vary more, so they are measured more often."""
    return min(_MOST_CYCLES, max(_CYCLES, _CYCLE_BYTES // max(sizes, default=_CYCLE_BYTES)))


def _repeated(measure: Measure, size: int) -> list[float]:
    times, end = [measure(size)], monotonic_ns() + _CELL_NS
    while monotonic_ns() < end and len(times) < _MOST_CALLS:
        times.append(measure(size))
    return times


def _median(times: Sequence[float]) -> float:
    return statistics.median(times)
