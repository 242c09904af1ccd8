"""The `analysis.Instrument` of experiments: what the commands that read run files call."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.instrument import Instrument
from flagscale_perf.analysis.timeline import Timeline
from flagscale_perf.bench.analysis import compare
from flagscale_perf.bench.analysis.report import read_report, report_of


def _report(path: Path) -> Report:
    return report_of(read_report(path))


INSTRUMENT = Instrument(
    report=_report,
    timeline=lambda session: Timeline(session.header),
    compare=compare.compare,
    comparison=compare.report_of,
)
