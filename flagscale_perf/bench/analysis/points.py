"""Points of a bandwidth test that say what they must: a run file may be damaged, or of another version."""

from __future__ import annotations

from typing import Any

from flagscale_perf.bench.analysis.source import Part
from flagscale_perf.bench.records import BenchPoint

MESSAGE = "send_recv"
# What a case must have as a number, by what makes it of its kind.
_NEEDED = {"executed": ("ranks",), "moved_bytes": ("rank", "moved_bytes")}


def measured(part: Part, **case: Any) -> list[BenchPoint]:
    """Times with these words in their case, of a size and with the ranks that belong to them."""
    return [point for point in part.of("time", **case) if _is_whole(point) and min(point.samples) > 0]


def _is_whole(point: BenchPoint) -> bool:
    case = point.case
    needed = ["size_bytes", *(name for key, names in _NEEDED.items() if key in case for name in names)]
    if case.get("op") == MESSAGE:
        needed += ["src", "dst"]
    return all(type(case.get(name)) is int for name in needed) and case["size_bytes"] > 0
