"""`flagscale-perf runs`: the sessions below a directory, side by side."""

from __future__ import annotations

import importlib
from argparse import ArgumentParser, Namespace
from pathlib import Path

from flagscale_perf.analysis.instrument import Instrument
from flagscale_perf.analysis.runs import Found, find_runs
from flagscale_perf.cli.base import Command
from flagscale_perf.cli.instruments import FIRST, instrument_for, load
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import replace_file

FORMATS = ("text", "markdown", "html", "json", "csv")


class RunsCommand(Command):
    """Lists the sessions below a directory, from their files alone."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Where to look, how closely, and what to make of it."""
        parser.add_argument(
            "directory", type=Path, metavar="DIR", help="where to look for run files, in it and below"
        )
        parser.add_argument(
            "--read-all",
            action="store_true",
            help="read long run files whole, too: without it their summary is shown, without findings",
        )
        parser.add_argument(
            "--format",
            choices=FORMATS,
            default="text",
            help="text (default), markdown, html (one page that overlays the runs ticked), json or csv",
        )
        parser.add_argument(
            "-o", "--output", type=Path, metavar="FILE", help="write it there instead of to the terminal"
        )

    def run(self, args: Namespace) -> int:
        """Prints or writes it. Raises PerfError where there is no run file."""
        found = find_runs(args.directory)
        report = _instrument(found).runs(found, args.read_all)
        made = importlib.import_module(f"flagscale_perf.report.{args.format}").render(report)
        if args.output is None:
            print(made, end="")
            return 0
        try:
            replace_file(args.output, made.encode())
        except OSError as error:
            raise PerfError(
                f"cannot write {str(args.output)!r}: {error.strerror or error}; give -o another place"
            ) from None
        return 0


def _instrument(found: Found) -> Instrument:
    """The one that wrote the first readable file; what cannot be read is in its list."""
    for path in found.paths:
        try:
            return instrument_for(path)
        except PerfError:
            continue
    return load(FIRST)
