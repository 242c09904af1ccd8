"""Calls and operations on a timeline."""

from __future__ import annotations

from flagscale_perf.analysis.timeline import Timeline
from flagscale_perf.spine.records import RunHeader


def timeline(header: RunHeader) -> Timeline:
    """Of the session with this header."""
    return Timeline(header)
