"""Calibrations with round figures, for tests of what is made of one."""

from __future__ import annotations

from collections.abc import Sequence

from diagnosis.calibration import Calibration, PathCost
from diagnosis.observed import Load

MIB = 1024 * 1024
# Name, transport, payload; us of a round trip; ns a byte in all, and of it to serialize and deserialize.
WAYS = (
    ("msgpack over ipc", "IPC", "msgpack", 30, (4.0, 1.5, 1.0)),
    ("msgpack over tcp", "TCP", "msgpack", 40, (4.5, 1.5, 1.0)),
    ("frames over ipc", "IPC", "frames", 35, (0.5, 0.0, 0.0)),
    ("shared memory", "IPC", "shared", 8, (0.11, 0.1, 0.0)),
)


def fixed(loads: Sequence[Load] = ()) -> Calibration:
    """Of these calls."""
    calls, moved = sum(load.calls for load in loads), sum(sum(load[1:]) for load in loads)
    paths = []
    for name, transport, payload, round_trip_us, per_byte in WAYS:
        total, serialize, deserialize = (100 * MIB * each for each in per_byte)
        round_trip = round_trip_us * 1000
        calls_ns = calls * round_trip + moved * per_byte[0]
        times = (round_trip, total, total, serialize, deserialize, calls_ns)
        paths.append(PathCost(name, transport, payload, *times))
    return Calibration("x86_64, 2 cores, Python 3.11", 3, 100 * MIB, paths)
