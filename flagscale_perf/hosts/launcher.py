"""`python -m flagscale_perf.launch SCRIPT ARGS...`, also under torchrun's `-m`."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence

from flagscale_perf.hosts.install import Installation
from flagscale_perf.spine.errors import PerfError

USAGE = "usage: python -m flagscale_perf.launch SCRIPT ARGS..."


def main(argv: Sequence[str]) -> int:
    """Runs the script `argv[0]` as `python SCRIPT` would, with hooks. Returns 2 for a wrong command line."""
    if argv and argv[0] in ("-h", "--help"):
        print(f"{USAGE}\nRuns an unmodified training script with the monitor's hooks; ARGS go to the script.")
        return 0
    try:
        run(argv)
    except PerfError as error:
        print(f"flagscale_perf: error: {error}", file=sys.stderr)
        return 2
    return 0


def run(argv: Sequence[str]) -> None:
    """Like `main`, but raises PerfError for a wrong command line."""
    if not argv or argv[0].startswith("-"):
        raise PerfError(f"no training script given; {USAGE}")
    script = argv[0]
    if not os.path.isfile(script):
        raise PerfError(f"training script {script!r} is not a file; give its path from {os.getcwd()}")
    installation = Installation(argv[1:], os.environ).install()
    sys.argv = list(argv)
    # With -P or PYTHONSAFEPATH Python puts neither our directory first nor the script's.
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.abspath(script))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code in (None, 0):
            installation.report_if_unused()
        raise
    installation.report_if_unused()
