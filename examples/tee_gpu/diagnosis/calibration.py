"""Measures what calls cost on this machine: a program's own are made anew by every way of carrying them, in
rounds, interleaved so that other load on the machine affects all alike.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tensor_rpc.client import Client
from tensor_rpc.options import ClientOptions, Payload
from tensor_rpc.wire import Array

from diagnosis.observed import Load
from diagnosis.partner import EXCHANGE, pages, start
from flagscale_perf.rpc.dtypes import DType
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.spine.clock import NS_PER_MS, monotonic_ns

KIB, MIB = 1024, 1024**2
LEAST_BYTES, USUAL_BYTES, MOST_BYTES = 64 * KIB, 8 * MIB, 128 * MIB  # of a message that is measured
_SIZE_NS = 3 * NS_PER_MS  # calls of a size are repeated this long in a round, and made at least once
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
class PathCost:
    """What one way of carrying calls costs, in nanoseconds.

    Attributes:
        name, transport, payload: as `Way` has them.
        round_trip_ns: of a call without arrays.
        there_ns, back_ns: what a message of `Calibration.message_bytes` adds to it, by its direction.
        serialize_ns, deserialize_ns: of these, on the caller's side; the server's are taken to be equal.
        calls_ns: of the program's calls one after another, without the methods' own time.
    """

    name: str
    transport: str
    payload: str
    round_trip_ns: float
    there_ns: float
    back_ns: float
    serialize_ns: float
    deserialize_ns: float
    calls_ns: float


@dataclass(frozen=True)
class Calibration:
    """What was measured on this machine.

    Attributes:
        machine: one line.
        rounds: of measurement, interleaved; times are their medians.
        message_bytes: of the message whose speed is shown.
        paths: ways of carrying calls, in the order they are shown.
    """

    machine: str
    rounds: int
    message_bytes: int
    paths: Sequence[PathCost]

    def path(self, payload: str, transport: str) -> PathCost | None:
        """None if it was not measured."""
        return next((p for p in self.paths if (p.transport, p.payload) == (transport, payload)), None)


class _Line:
    """A connection to a partner, and what its calls took: a list of rounds for each size."""

    def __init__(self, way: Way, endpoint: str, largest_bytes: int) -> None:
        self.way = way
        self.rounds: dict[tuple[int, int], list[tuple[float, float, float]]] = {}
        self._records: list[CallRecord] = []
        options = ClientOptions(endpoint, way.payload, max_message_bytes=largest_bytes)
        self.client = Client.connect(options, self._records.append)

    def measure(self, source: memoryview, size: tuple[int, int]) -> None:
        """Calls that send and receive so many bytes."""
        sent, received = size
        arrays = [Array(DType.UINT8, (sent,), source[:sent])] if sent else []
        self._records.clear()
        end = monotonic_ns() + _SIZE_NS
        while not self._records or monotonic_ns() < end:
            self.client.call(EXCHANGE, arrays, {"bytes": received})
        times = [(each.total_ns, each.serialize_ns, each.deserialize_ns) for each in self._records]
        total, serialize, deserialize = map(median, zip(*times, strict=True))
        self.rounds.setdefault(size, []).append((total, serialize, deserialize))

    def took(self, size: tuple[int, int]) -> tuple[float, float, float]:
        """All of a call, and of it serializing and deserializing here. The first round, in which memory was
        used for the first time, does not count.
        """
        total, serialize, deserialize = map(median, zip(*self.rounds[size][1:], strict=True))
        return total, serialize, deserialize


def calibrate(loads: Sequence[Load], rounds: int) -> Calibration:
    """Measures everything; takes some seconds. Without `loads` only messages are measured."""
    largest = max((max(load.each) for load in loads), default=USUAL_BYTES)
    largest = min(max(largest, LEAST_BYTES), MOST_BYTES)
    sizes = dict.fromkeys([(0, 0), (largest, 0), (0, largest), *(_measured(load)[0] for load in loads)])
    source = pages(largest)
    with _connected(largest + _MARGIN) as lines:
        for _ in range(1 + rounds):
            for line in lines:
                for size in sizes:
                    line.measure(source, size)
    load = os.getloadavg()[0]
    machine = (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load:.1f}"
    )
    return Calibration(machine, rounds, largest, [_cost(line, largest, loads) for line in lines])


def _measured(load: Load) -> tuple[tuple[int, int], float]:
    """The size that is measured for a load, and how many times that its calls have."""
    sent, received = load.each
    times = max(1.0, max(sent, received) / MOST_BYTES)
    return (int(sent / times), int(received / times)), times


def _cost(line: _Line, largest: int, loads: Sequence[Load]) -> PathCost:
    idle, _, _ = line.took((0, 0))
    there, serialize, _ = line.took((largest, 0))
    back, _, deserialize = line.took((0, largest))
    calls = 0.0
    for load in loads:
        size, times = _measured(load)
        calls += load.calls * (idle + times * max(0.0, line.took(size)[0] - idle))
    return PathCost(
        *line.way,
        round_trip_ns=idle,
        there_ns=max(0.0, there - idle),
        back_ns=max(0.0, back - idle),
        serialize_ns=serialize,
        deserialize_ns=deserialize,
        calls_ns=calls,
    )


@contextmanager
def _connected(largest_bytes: int) -> Iterator[list[_Line]]:
    """A line for each way, with the processes at their other ends."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rpc_calibration_")))
        asked = {"IPC": f"ipc://{directory}/calls.ipc", "TCP": "tcp://127.0.0.1:*"}
        endpoints = {
            transport: stack.enter_context(start(endpoint, largest_bytes))
            for transport, endpoint in asked.items()
        }
        lines = []
        for way in WAYS:
            line = _Line(way, endpoints[way.transport], largest_bytes)
            stack.callback(line.client.close)
            lines.append(line)
        yield lines
