"""The program `flagscale-perf`, and `python -m flagscale_perf` where its directory is not on the PATH."""

from __future__ import annotations

import sys

from flagscale_perf.spine.interrupted import Quietly


def main() -> int:
    """Runs the words of the command line; returns the exit code."""
    with Quietly():
        from flagscale_perf.cli import main as run
    return run()


if __name__ == "__main__":
    sys.exit(main())
