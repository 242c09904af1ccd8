"""What the commands that read run files and logs call for traces of a queue."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.instrument import Instrument
from flagscale_perf.trace.analysis import blocks, compare
from flagscale_perf.trace.analysis.live import LiveTraces
from flagscale_perf.trace.analysis.report import read_report
from flagscale_perf.trace.analysis.timeline import timeline


def _report(path: Path) -> Report:
    return blocks.report_of(read_report([path]))


INSTRUMENT = Instrument(
    report=_report,
    timeline=timeline,
    compare=compare.compare,
    comparison=compare.report_of,
    live=LiveTraces,
)
