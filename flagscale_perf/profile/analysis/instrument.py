"""The profile's `analysis.Instrument`: what the commands that read run files call."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.instrument import Instrument
from flagscale_perf.profile.analysis import blocks, compare
from flagscale_perf.profile.analysis.extend import load
from flagscale_perf.profile.analysis.report import read_report
from flagscale_perf.profile.analysis.timeline import timeline


def _report(path: Path) -> Report:
    load()
    return blocks.report_of(read_report(path))


INSTRUMENT = Instrument(
    report=_report, timeline=timeline, compare=compare.compare, comparison=compare.report_of
)
