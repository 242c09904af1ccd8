"""The `analysis.Instrument` of calls: what the commands that read run files call."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.instrument import Instrument
from flagscale_perf.rpc.analysis import blocks, compare
from flagscale_perf.rpc.analysis.live import LiveCalls
from flagscale_perf.rpc.analysis.report import read_calls
from flagscale_perf.rpc.analysis.timeline import timeline


def _report(path: Path) -> Report:
    return blocks.report_of(read_calls(path))


INSTRUMENT = Instrument(
    report=_report,
    timeline=timeline,
    compare=compare.compare,
    comparison=compare.report_of,
    live=LiveCalls,
)
