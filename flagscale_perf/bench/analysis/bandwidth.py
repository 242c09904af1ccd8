"""A bandwidth test in figures: what links and memory carry, and how it grows with the size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flagscale_perf.analysis.blocks import Block, Quantity, Section, Table
from flagscale_perf.analysis.verdicts import Verdict, verdict_of
from flagscale_perf.bench.analysis.shown import Remark, Shown
from flagscale_perf.bench.analysis.source import Part, spread
from flagscale_perf.bench.records import BenchPoint
from flagscale_perf.profile.operations import bus_factor

GB = 1e9
MESSAGE = "send_recv"


def algbw(point: BenchPoint) -> float:
    """Bytes a second, in 10^9."""
    size = point.case.get("moved_bytes") or point.case["size_bytes"]
    return float(size) / spread(point.samples).median / GB


def busbw(point: BenchPoint) -> float | None:
    """The same as load of each rank's link, by the factor of what was executed."""
    factor = bus_factor(str(point.case.get("executed")), point.case.get("ranks"))
    return None if factor is None else factor * algbw(point)


def _collectives(part: Part) -> list[BenchPoint]:
    return [point for point in part.of("time") if "executed" in point.case]


def _sections(part: Part) -> Sequence[Section]:
    rows = [
        (str(point.case["op"]), Quantity(point.case["size_bytes"], ""),
         Quantity(spread(point.samples).median * 1e6, ""), Quantity(algbw(point), ""),
         Quantity(busbw(point), ""))
        for point in _collectives(part)
    ]  # fmt: skip
    head = ("operation", "bytes", "us", "algbw, GB/s", "busbw, GB/s")
    return [
        Section(
            "collectives", "Collectives", "Collectives", [*_drawn(part), Table(head, rows, 4)] if rows else []
        )
    ]


def _drawn(part: Part) -> Sequence[Block]:
    return []


def _content(part: Part) -> Mapping[str, Any]:
    return {}


def _verdicts(part: Part) -> Sequence[Verdict]:
    links = [algbw(point) for point in part.of("time", op=MESSAGE, way="one way")]
    copies = [algbw(point) for point in part.of("time", op="copy")]
    return [
        verdict_of("P2P", max(links, default=None), "GB/s", (200.0, 100.0), "the fastest message, one way"),
        verdict_of(
            "memory bandwidth",
            max(copies, default=None),
            "GB/s",
            (1500.0, 1500.0),
            "a copy, read and written",
        ),
    ]


def _remarks(part: Part) -> Sequence[Remark]:
    return [Remark(text, "warn") for text in part.settings.get("said", ())]


SHOWN = Shown(
    "bandwidth", "bandwidth_test", "bandwidth_analysis", _sections, _drawn, _content, _verdicts, _remarks
)
