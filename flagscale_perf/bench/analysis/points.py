"""Selects the well-formed points of a bandwidth test, as a run file may be damaged or of another version."""

from __future__ import annotations

from typing import Any

from flagscale_perf.bench.analysis.source import Part
from flagscale_perf.bench.records import BenchPoint

MESSAGE = "send_recv"
# Key that makes a case of its kind -> keys that must then hold a number.
_NEEDED = {"executed": ("ranks",), "moved_bytes": ("rank", "moved_bytes")}


def measured(part: Part, **case: Any) -> list[BenchPoint]:
    """Times whose case has these words, with an operation, a valid size and valid ranks."""
    return [point for point in part.of("time", **case) if _is_whole(point) and min(point.samples) > 0]


def _is_whole(point: BenchPoint) -> bool:
    case = point.case
    needed = ["size_bytes", *(name for key, names in _NEEDED.items() if key in case for name in names)]
    if case.get("op") == MESSAGE:
        needed += ["src", "dst"]
    is_named = type(case.get("op")) is str
    return is_named and all(type(case.get(name)) is int for name in needed) and case["size_bytes"] > 0
