"""`flagscale-perf report`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from flagscale_perf.analysis.history import stitch
from flagscale_perf.analysis.run_file import find_run_file
from flagscale_perf.analysis.summary import summarize
from flagscale_perf.cli.base import Command
from flagscale_perf.report.history import render_history
from flagscale_perf.report.text import render_summary


class ReportCommand(Command):
    """Prints a run's summary, made from the run file alone."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Where the run is."""
        parser.add_argument("run", type=Path, metavar="RUN_DIR_OR_FILE", help="the --perf-log-dir of a run, or one perf_records_*.jsonl")
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--all-sessions", action="store_true", help="where the time of all sessions of the directory together went")
        which.add_argument("--session", metavar="ID", help="a session of the directory, such as 20240129_103000 (default: the newest)")

    def run(self, args: Namespace) -> int:
        """Prints the text. Raises PerfError where there is no run."""
        if args.all_sessions:
            print(render_history(stitch(args.run)), end="")
            return 0
        print(render_summary(summarize(find_run_file(args.run, args.session))), end="")
        return 0
