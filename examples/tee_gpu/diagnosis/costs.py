"""The cost model of a call by its bytes: measured at some sizes, and predicted for other traffic."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flagscale_perf.spine.clock import NS_PER_S


class Load(NamedTuple):
    """Calls of one size.

    Attributes:
        calls: how many.
        sent_bytes, received_bytes: of each.
    """

    calls: int
    sent_bytes: float
    received_bytes: float


@dataclass(frozen=True)
class Traffic:
    """The calls of a program by size. If only totals are known, all calls are assumed to be alike."""

    loads: tuple[Load, ...]

    @classmethod
    def alike(cls, calls: int, sent_bytes: float, received_bytes: float) -> Traffic:
        """This many equal calls with this many bytes in all."""
        return cls((Load(calls, sent_bytes / calls, received_bytes / calls),) if calls else ())

    @classmethod
    def of(cls, calls: Iterable[tuple[int, int]]) -> Traffic:
        """Traffic from calls given as (bytes sent, bytes received)."""
        sizes = Counter(calls)
        return cls(tuple(Load(count, *size) for size, count in sorted(sizes.items())))

    @property
    def calls(self) -> int:
        """How many calls this traffic is of."""
        return sum(load.calls for load in self.loads)

    @property
    def sent_bytes(self) -> int:
        """Bytes sent by all calls."""
        return round(sum(load.calls * load.sent_bytes for load in self.loads))

    @property
    def received_bytes(self) -> int:
        """Bytes received by all calls."""
        return round(sum(load.calls * load.received_bytes for load in self.loads))

    @property
    def largest_bytes(self) -> int:
        """Size of the largest message in either direction."""
        return round(max((max(load[1:]) for load in self.loads), default=0))


@dataclass(frozen=True)
class Curve:
    """Time by size: `a + b * bytes` between each two measured sizes, as the last two have it beyond them.

    One straight line for all sizes does not do: a byte of a large message costs several times what one of a
    small message does, for it is in no cache and its pages are new.

    Attributes:
        points: bytes and nanoseconds, by rising size.
    """

    points: tuple[tuple[float, float], ...]

    @classmethod
    def through(cls, measured: Mapping[int, float]) -> Curve:
        """Interpolates measured times. If a larger size came out cheaper, that is noise, and the time stays
        level.
        """
        points: list[tuple[float, float]] = []
        for size, cost_ns in sorted(measured.items()):
            points.append((size, max(cost_ns, points[-1][1]) if points else cost_ns))
        return cls(tuple(points))

    def at(self, size: float) -> float:
        """Nanoseconds for this many bytes."""
        if len(self.points) == 1 or size <= self.points[0][0]:
            return self.points[0][1]
        place = min(bisect_left(self.points, size, key=lambda point: point[0]), len(self.points) - 1)
        (x0, y0), (x1, y1) = self.points[place - 1 : place + 1]
        return y0 + (y1 - y0) * (size - x0) / (x1 - x0)

    @property
    def fixed_ns(self) -> float:
        """Time of the smallest size: the fixed cost of a message."""
        return self.points[0][1]

    @property
    def bytes_per_s(self) -> float | None:
        """Speed at the largest size, from its time beyond that of the smallest; None if there is no
        difference.
        """
        (x0, y0), (x1, y1) = self.points[0], self.points[-1]
        return None if y1 <= y0 else (x1 - x0) / (y1 - y0) * NS_PER_S


@dataclass(frozen=True)
class Prediction:
    """Predicted times of some traffic on one path, in nanoseconds.

    Attributes:
        fixed_ns: of it, what the calls would cost without a byte: waking up, headers, system calls.
        serialize_ns, deserialize_ns: of it, on both sides.
    """

    total_ns: float
    fixed_ns: float
    serialize_ns: float
    deserialize_ns: float


@dataclass(frozen=True)
class PathCost:
    """What one transport costs.

    Attributes:
        name: as it is shown.
        transport: "IPC", "TCP" or "INPROC".
        payload: "msgpack", "frames" or "shared".
        round_trip_ns: of a call without arrays.
        there: a call by the bytes that it sends, without what it would cost without them.
        back: a call by the bytes that it receives, likewise.
        serialize, deserialize: of these, on the caller's side; the server's are taken to be equal.
    """

    name: str
    transport: str
    payload: str
    round_trip_ns: float
    there: Curve
    back: Curve
    serialize: Curve
    deserialize: Curve

    def predict(self, traffic: Traffic) -> Prediction:
        """The time of all calls one after another, without the methods' own time."""
        total = fixed = serialize = deserialize = 0.0
        for calls, sent, received in traffic.loads:
            fixed += calls * self.round_trip_ns
            total += calls * (self.round_trip_ns + self.there.at(sent) + self.back.at(received))
            serialize += calls * (self.serialize.at(sent) + self.serialize.at(received))
            deserialize += calls * (self.deserialize.at(sent) + self.deserialize.at(received))
        return Prediction(total, fixed, serialize, deserialize)


@dataclass(frozen=True)
class Calibration:
    """What was measured on this machine.

    Attributes:
        machine: one line.
        rounds: of measurement, interleaved; times are their medians.
        paths: ways of carrying calls, in the order they are shown.
    """

    machine: str
    rounds: int
    paths: Sequence[PathCost]

    def path(self, payload: str, transport: str) -> PathCost | None:
        """None if it was not measured."""
        return next((p for p in self.paths if (p.transport, p.payload) == (transport, payload)), None)
