"""`flagscale-perf runs`: the trainings below a directory, side by side."""

from __future__ import annotations

import importlib
from argparse import ArgumentParser, Namespace
from pathlib import Path

from flagscale_perf.analysis.instrument import Instrument
from flagscale_perf.analysis.runs import Found, Unread, find_runs
from flagscale_perf.cli.base import Command
from flagscale_perf.cli.instruments import FIRST, instrument_for, load
from flagscale_perf.cli.output import add_output, format_of, put
from flagscale_perf.spine.errors import PerfError

FORMATS = ("text", "markdown", "html", "json", "csv")
_SHOWN = "flagscale-perf report shows what else was recorded"


class RunsCommand(Command):
    """Lists the trainings below a directory, from their files alone."""

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
        about = "text (default), markdown, html (one page that overlays the runs ticked), json or csv"
        add_output(parser, FORMATS, about)

    def run(self, args: Namespace) -> int:
        """Prints or writes it. Raises PerfError where there is no run file."""
        chosen = format_of(args, FORMATS, "runs")
        found = find_runs(args.directory)
        report = _instrument(found).runs(found, args.read_all)
        put(importlib.import_module(f"flagscale_perf.report.{chosen}").render(report), args.output)
        return 0


def _instrument(found: Found) -> Instrument:
    """The one that wrote the first readable file of those whose runs can be listed; the others' files are not
    in the list, and what cannot be read is in it.
    """
    listed: Instrument | None = None
    for path in list(found.paths):
        try:
            instrument = instrument_for(path)
        except PerfError:
            continue
        if instrument.has_list:
            listed = listed or instrument
        else:
            found.paths.remove(path)
            found.unread.append(Unread(found.relative(path), f"no training; {_SHOWN}"))
    if not found.paths:
        raise PerfError(f"there is no training in or below {str(found.directory)!r} to list; {_SHOWN}")
    return listed or load(FIRST)
