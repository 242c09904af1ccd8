"""What the commands that read run files call for a training."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.instrument import Instrument
from flagscale_perf.analysis.runs import Found
from flagscale_perf.training.analysis import blocks, compare, history, runs
from flagscale_perf.training.analysis.fold import read_report
from flagscale_perf.training.analysis.live import LiveRun
from flagscale_perf.training.analysis.timeline import timeline


def _report(path: Path) -> Report:
    return blocks.report_of(read_report(path))


def _sessions(directory: Path) -> Report:
    return history.report_of(history.stitch(directory))


def _runs(found: Found, is_all_read: bool) -> Report:
    return runs.report_of(runs.list_runs(found, is_all_read))


INSTRUMENT = Instrument(
    report=_report,
    sessions=_sessions,
    compare=compare.compare,
    comparison=compare.report_of,
    runs=_runs,
    live=LiveRun,
    timeline=timeline,
)
