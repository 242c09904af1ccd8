"""`flagscale-perf runs`: the trainings below a directory, side by side, and sessions of other instruments."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.instrument import Instrument, load
from flagscale_perf.analysis.listed import Session, read_session, with_sessions
from flagscale_perf.analysis.run_file import RunFile
from flagscale_perf.analysis.runs import Found, find_runs
from flagscale_perf.cli.base import Command, local_path
from flagscale_perf.cli.instruments import FIRST, instrument_for
from flagscale_perf.cli.output import add_output, format_of, put_report
from flagscale_perf.spine.errors import PerfError

FORMATS = ("text", "markdown", "html", "json", "csv")


class RunsCommand(Command):
    """Lists the trainings and other sessions below a directory, from their files alone."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Arguments: where to look, how closely, and what to make of it."""
        add = parser.add_argument
        add("directory", type=local_path, metavar="DIR", help="where to look for run files, in it and below")
        add(
            "--read-all",
            action="store_true",
            help="read long run files whole, too: without it their summary is shown, without findings",
        )
        about = "text (default), markdown, html (one page that overlays the runs ticked), json or csv"
        add_output(parser, FORMATS, about)

    def run(self, args: Namespace) -> int:
        """Prints or writes it. Raises PerfError where there is no run file."""
        chosen = format_of(args, FORMATS, "runs")
        put_report(_report(find_runs(args.directory), args.read_all), chosen, args.output)
        return 0


def _report(found: Found, is_all_read: bool) -> Report:
    """Trainings by the list of their instrument, which also names what cannot be read; then the others."""
    listed: Instrument | None = None
    sessions: list[Session] = []
    for path in list(found.paths):
        try:
            instrument = instrument_for(path)
        except PerfError:
            continue
        if instrument.has_list:
            listed = listed or instrument
            continue
        found.paths.remove(path)
        name = RunFile(path).header.instrument
        if session := read_session(path, found, name, instrument.report, is_all_read):
            sessions.append(session)
    if sessions and not found.paths:
        return with_sessions(None, sessions, found)
    runs = (listed or load(FIRST)).runs(found, is_all_read)
    return with_sessions(runs, sessions, found) if sessions else runs
