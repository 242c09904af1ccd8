#!/usr/bin/env python3
"""Prints what the collectives of a profile cost, as JSON with the requirement's keys.

python scripts/qwen3_comm_profiler.py outputs/profile
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from flagscale_perf.analysis.job import open_session
from flagscale_perf.cli.instruments import load_records
from flagscale_perf.profile.analysis.blocks import remarks_of
from flagscale_perf.profile.analysis.files import comm_analysis
from flagscale_perf.profile.analysis.instrument import read_report
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.units import printable


def main(argv: list[str] | None = None) -> int:
    """Prints it; 1 where the profile has no rows, 2 where there is none."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="the directory of a profile's run file, or the file")
    args = parser.parse_args(argv)
    load_records()
    try:
        found = read_report(open_session(args.run))
    except PerfError as error:
        print(f"qwen3_comm_profiler: {printable(str(error))}", file=sys.stderr)
        return 2
    for remark in remarks_of(found):
        print(printable(f"qwen3_comm_profiler: {remark}"), file=sys.stderr)
    print(dump(comm_analysis(found)))
    return 0 if found.has_rows else 1


if __name__ == "__main__":
    sys.exit(main())
