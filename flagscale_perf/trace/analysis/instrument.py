"""The `analysis.Instrument` of queue traces: what the commands that read run files and logs call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.instrument import Instrument
from flagscale_perf.trace.analysis import blocks, compare
from flagscale_perf.trace.analysis.findings import judge
from flagscale_perf.trace.analysis.live import LiveTraces
from flagscale_perf.trace.analysis.report import TraceReport, report_of
from flagscale_perf.trace.analysis.sample import report_of_sample
from flagscale_perf.trace.analysis.source import read_traces
from flagscale_perf.trace.analysis.timeline import timeline
from flagscale_perf.trace.records import CallRecord, ClearRecord, OperationRecord, StartRecord, WaitRecord

TEXTS = {
    OperationRecord: ("partition", "error", "slowest_unit"),
    CallRecord: ("function", "error"),
    WaitRecord: ("partition", "error", "task"),
    ClearRecord: ("partition", "error"),
    StartRecord: ("partition", "function"),
}


def read_report(paths: Sequence[Path]) -> TraceReport:
    """The report of run files, logs or directories. Raises PerfError for anything else."""
    return judge(report_of(read_traces(paths)))


def _report(path: Path) -> Report:
    return blocks.report_of(read_report([path]))


INSTRUMENT = Instrument(
    report=_report,
    timeline=timeline,
    compare=compare.compare,
    comparison=compare.report_of,
    live=LiveTraces,
    texts=TEXTS,
    sample=lambda path, asked: report_of_sample(read_traces([path]), asked),
)
