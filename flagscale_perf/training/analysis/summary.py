"""A run's summary made again from its run file alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flagscale_perf.analysis.run_file import RunFile
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import BadLine
from flagscale_perf.training.summary.summary import RUNNING, Summary
from flagscale_perf.training.summary.totals import RunTotals

KILLED = "killed"


@dataclass(frozen=True)
class RunSummary:
    """What a run file says.

    Attributes:
        path: of the run file.
        summary: what the writer puts into perf_summary_*.json.
        bad_lines: the first lines that are no records.
        skipped: how many there are.
    """

    path: Path
    summary: Summary
    bad_lines: list[BadLine]
    skipped: int


def summarize(path: Path) -> RunSummary:
    """The summary of one run file. Raises PerfError if it is none.

    A run that never wrote its end is "running" while a writer holds the file, else "killed".
    """
    run = RunFile(path)
    try:
        totals = RunTotals(run.header)
    except ValueError:
        raise PerfError(
            f"{path}:1: {run.header.session_id!r} is no session id such as 20240129_103000"
        ) from None
    for record in run:
        totals.add(record)
    summary = totals.result()
    if summary.session_info.end_reason == RUNNING and not run.is_live():
        summary = summary.ended(KILLED)
    return RunSummary(path, summary, run.bad_lines, run.skipped)
