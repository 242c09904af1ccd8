"""Measures what calls cost on this machine: every transport, by bytes and direction, interleaved in rounds so
that other load on the machine affects all alike.
"""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tensor_rpc.arrays import Array, DType
from tensor_rpc.client import Client
from tensor_rpc.options import ClientOptions, Payload

from diagnosis.costs import Calibration, Curve, PathCost
from diagnosis.partner import EXCHANGE, start
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.spine.clock import NS_PER_MS, monotonic_ns

KIB, MIB = 1024, 1024**2
LADDER = tuple(n * KIB for n in (1, 16, 64, 256)) + tuple(n * MIB for n in (1, 2, 4, 8, 16, 32, 64, 128))
_MIXED_FROM = 512 * KIB  # larger calls of real programs rarely find their data still in the caches
_CYCLES, _MOST_CYCLES = 2, 10  # of the sizes that are mixed, in a round
_CYCLE_BYTES = 64 * MIB  # so much of the largest size in all cycles of a round, within these
_CELL_NS = 3 * NS_PER_MS  # a smaller size is called this long in a round, and at least once
_MOST_CALLS = 30
_MARGIN = 65536  # above the largest size, for what else is in a message


class Way(NamedTuple):
    """One way of carrying calls; `payload` "msgpack" is the baseline."""

    name: str
    transport: str
    payload: Payload


WAYS = (
    Way("msgpack over ipc", "IPC", "msgpack"),
    Way("msgpack over tcp", "TCP", "msgpack"),
    Way("frames over ipc", "IPC", "frames"),
    Way("frames over tcp", "TCP", "frames"),
    Way("shared memory", "IPC", "shared"),
)


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
        options = ClientOptions(endpoint, way.payload, max_message_bytes=largest_bytes)
        self.client = Client.connect(options, self._records.append)
        self.times = Times()

    def exchange(self, sent: memoryview, received_bytes: int) -> CallRecord:
        """One call that sends and receives this many bytes."""
        arrays = [Array(DType.UINT8, (len(sent),), sent)] if len(sent) else []
        self._records.clear()
        self.client.call(EXCHANGE, arrays, {"bytes": received_bytes})
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


@contextmanager
def connected(plan: Plan) -> Iterator[list[Line]]:
    """A line for each transport, with the processes at their other ends."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rpc_calibration_")))
        asked = {"IPC": f"ipc://{directory}/calls.ipc", "TCP": "tcp://127.0.0.1:*"}
        largest = plan.largest_bytes + _MARGIN
        endpoints = {
            transport: stack.enter_context(start(asked[transport], largest))
            for transport in dict.fromkeys(way.transport for way in plan.ways)
        }
        lines = []
        for way in plan.ways:
            line = Line(way, endpoints[way.transport], largest)
            stack.callback(line.client.close)
            lines.append(line)
        yield lines


def calibrate(plan: Plan) -> Calibration:
    """Measures everything; takes some seconds."""
    # Written to, so that it has its own pages: untouched memory is all one shared page of zeros.
    source = memoryview(bytearray(b"\x5a") * plan.largest_bytes)
    with connected(plan) as lines:
        for line in lines:  # memory that is used for the first time costs more
            line.exchange(source, plan.largest_bytes)
        for _ in range(plan.rounds):
            for line in lines:
                line.measure(source, plan.sizes)
        return Calibration(machine(), plan.rounds, [line.cost() for line in lines])


def machine() -> str:
    """A one-line description of this machine."""
    load = os.getloadavg()[0]
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load:.1f}"
    )


def _cycles(sizes: Sequence[int]) -> int:
    """Number of repetitions: calls of a few MiB are quick and vary more, so they are measured more often."""
    return min(_MOST_CYCLES, max(_CYCLES, _CYCLE_BYTES // max(sizes, default=_CYCLE_BYTES)))


def _median(times: Sequence[float]) -> float:
    return statistics.median(times)
