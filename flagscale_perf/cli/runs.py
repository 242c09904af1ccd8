"""`flagscale-perf runs`: the trainings below a directory, side by side, and sessions of other instruments."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.instrument import installed, load
from flagscale_perf.analysis.job import sessions_below
from flagscale_perf.analysis.listed import Row, read_row, with_rows
from flagscale_perf.analysis.listing import Listing
from flagscale_perf.analysis.session import Session
from flagscale_perf.cli.base import Command, add_cache, local_path
from flagscale_perf.cli.output import add_output, format_of, put_report

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
        add_cache(parser)
        about = "text (default), markdown, html (one page that overlays the runs ticked), json or csv"
        add_output(parser, FORMATS, about)

    def run(self, args: Namespace) -> int:
        """Prints or writes it. Raises PerfError where there is no run file."""
        chosen = format_of(args, FORMATS, "runs")
        found = replace(sessions_below(args.directory), is_drawn=chosen == "html")
        put_report(_report(found, args.read_all), chosen, args.output)
        if found.kept is not None:
            found.kept.keep()
        return 0


def _report(found: Listing, is_all_read: bool) -> Report:
    """Sessions by the list of their instrument, and below it those of instruments that have none."""
    listed: list[Session] = []
    rows: list[Row] = []
    for session in found.sessions:
        if load(session.instrument).offers("runs"):
            listed.append(session)
        elif row := read_row(session, found, is_all_read):
            rows.append(row)
    if rows and not listed:
        return with_rows(None, rows, found)
    names = [session.instrument for session in listed] or installed()
    report = next(
        instrument.runs(replace(found, sessions=listed), is_all_read)
        for instrument in map(load, names)
        if instrument.offers("runs")
    )
    return with_rows(report, rows, found) if rows else report
