"""A calibration with round figures, for tests of what is made of one."""

from __future__ import annotations

from diagnosis.costs import Calibration, Curve, PathCost

MIB = 1024 * 1024
_SIZES = (0, MIB, 100 * MIB)


def line(ns_per_byte: float) -> Curve:
    """Through nothing, so many nanoseconds a byte."""
    return Curve(tuple((size, size * ns_per_byte) for size in _SIZES))


def path(
    name: str, kind: tuple[str, str], round_trip_us: float, per_byte: tuple[float, float, float]
) -> PathCost:
    """Of `kind` (transport, payload); ns a byte in all, and of it to serialize and deserialize."""
    total, serialize, deserialize = map(line, per_byte)
    return PathCost(name, *kind, round_trip_us * 1000, total, total, serialize, deserialize)


# msgpack costs 4 ns a byte and direction, of it 1.5 and 1 at its two ends.
FIXED = Calibration(
    "x86_64, 2 cores, Python 3.11",
    3,
    [
        path("msgpack over ipc", ("IPC", "msgpack"), 30, (4.0, 1.5, 1.0)),
        path("msgpack over tcp", ("TCP", "msgpack"), 40, (4.5, 1.5, 1.0)),
        path("frames over ipc", ("IPC", "frames"), 35, (0.5, 0.0, 0.0)),
        path("shared memory", ("IPC", "shared"), 8, (0.11, 0.1, 0.0)),
    ],
)
