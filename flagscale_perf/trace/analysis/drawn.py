"""Traces in pictures: who did what when, how full the queue was, how long samples stayed."""

from __future__ import annotations

from flagscale_perf.analysis.blocks import Section
from flagscale_perf.trace.analysis.report import TraceReport


def drawn(found: TraceReport) -> list[Section]:
    """The sections that are mostly pictures."""
    return []
