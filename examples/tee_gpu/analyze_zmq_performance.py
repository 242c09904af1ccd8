"""Reads a performance log, or the directory of a run, and says where the time of its calls goes.

python analyze_zmq_performance.py zmq_performance.log
python analyze_zmq_performance.py zmq_performance.log --chinese

The log may be another program's with the same columns. `flagscale-perf report` makes pages, pictures and
tables of the same.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from diagnosis.layout import layout
from diagnosis.rules import judge_split
from diagnosis.words import CHINESE, ENGLISH
from split_inference.options import run_program

from flagscale_perf.analysis.job import open_session
from flagscale_perf.cli.instruments import load_records
from flagscale_perf.rpc.analysis.blocks import complaint_of
from flagscale_perf.rpc.analysis.instrument import read_calls
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.units import for_stdout

DEFAULT_LOG = Path("zmq_performance.log")


def main(argv: list[str] | None = None) -> int:
    """Prints the analysis; 1 where lines of the log could not be read, 2 where there is none."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "log", type=Path, nargs="?", default=DEFAULT_LOG, help="a log, a run file or its directory"
    )
    parser.add_argument("--chinese", action="store_true", help="recommendations in Chinese")
    args = parser.parse_args(argv)
    load_records()
    try:
        found = judge_split(read_calls(open_session(args.log)))
    except PerfError as error:
        print(f"analyze_zmq_performance: {error}", file=sys.stderr)
        return 2
    print(for_stdout(layout(found, CHINESE if args.chinese else ENGLISH)), end="")
    complaint = complaint_of(found)
    if complaint:
        print(f"analyze_zmq_performance: {complaint}", file=sys.stderr)
    return 1 if complaint else 0


if __name__ == "__main__":
    run_program(main)
