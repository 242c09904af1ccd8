#!/usr/bin/env python3
"""Sums up the [TQ-TRACE] lines of logs, or of a run's directory: where the time of traced functions goes.

python scripts/analyze_tq_logs.py /path/to/training.log
python scripts/analyze_tq_logs.py training.log.1 training.log worker.log.gz
python scripts/analyze_tq_logs.py logs/trace

`flagscale-perf report` says more about the same: percentiles, what an operation costs, what holds it back.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from flagscale_perf.analysis.job import Job
from flagscale_perf.analysis.session import Session
from flagscale_perf.cli.instruments import load_records
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.units import for_stdout, printable
from flagscale_perf.trace.analysis.layout import NOTHING, layout
from flagscale_perf.trace.analysis.remarks import remarks_of
from flagscale_perf.trace.analysis.source import read_traces


def main(argv: list[str] | None = None) -> int:
    """Prints the sums; 1 where there is no trace in the logs, 2 where there is no log."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("log", type=Path, nargs="+", help="a log, a directory of logs, or a run's directory")
    args = parser.parse_args(argv)
    load_records()
    try:
        traces = read_traces(_opened(args.log))
    except PerfError as error:
        print(f"analyze_tq_logs: {printable(str(error))}", file=sys.stderr)
        return 2
    for remark in remarks_of(traces):
        print(printable(f"analyze_tq_logs: {remark}"), file=sys.stderr)
    if not traces.sums.calls:
        print(f"{', '.join(map(str, args.log))}: {NOTHING}")
        return 1
    print(for_stdout(layout(traces)), end="")
    return 0


def _opened(paths: Sequence[Path]) -> Session:
    """Logs, or run files of one job. Raises PerfError for a mixture of both kinds."""
    jobs = list(map(Job, paths))
    runs = [job.session() for job in jobs if job.files and (job.files[-1].run or job.path.is_dir())]
    logs = [job.path for job in jobs if not job.files or not (job.files[-1].run or job.path.is_dir())]
    if runs and logs:
        raise PerfError(f"{str(logs[0])!r} is a log and {str(runs[0].path)!r} a run file: give only one kind")
    files = {file.path.resolve(): file for one in runs for file in one.files}
    return Session([*files.values()], logs=logs, instrument="trace")


if __name__ == "__main__":
    sys.exit(main())
