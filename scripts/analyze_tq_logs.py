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
from pathlib import Path

from flagscale_perf.cli.instruments import load_records, run_or_logs
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
        traces = read_traces([run_or_logs(path) for path in args.log])
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


if __name__ == "__main__":
    sys.exit(main())
