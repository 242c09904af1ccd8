"""The `analysis.Instrument` of calls: what the commands that read run files call."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.instrument import Instrument
from flagscale_perf.rpc.analysis import blocks, compare, report
from flagscale_perf.rpc.analysis.findings import judge
from flagscale_perf.rpc.analysis.live import LiveCalls
from flagscale_perf.rpc.analysis.report import CallsReport
from flagscale_perf.rpc.analysis.timeline import timeline


def read_calls(path: Path) -> CallsReport:
    """The report of a run file or a log, with findings. Raises PerfError if the file is neither."""
    return judge(report.read_calls(path))


def _report(path: Path) -> Report:
    return blocks.report_of(read_calls(path))


INSTRUMENT = Instrument(
    report=_report,
    timeline=timeline,
    compare=compare.compare,
    comparison=compare.report_of,
    live=LiveCalls,
)
