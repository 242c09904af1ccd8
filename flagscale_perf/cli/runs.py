"""`flagscale-perf runs`: the jobs below a directory side by side: trainings, and what else leads one."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from flagscale_perf.analysis.job import sessions_below
from flagscale_perf.analysis.jobs import as_jobs, report_of
from flagscale_perf.cli.base import Command, add_cache, local_path
from flagscale_perf.cli.output import STDOUT, add_output, format_of, put_report

FORMATS = ("text", "markdown", "html", "json", "csv")


class RunsCommand(Command):
    """Lists the jobs below a directory, from their files alone."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Arguments: where to look, which of them in which order, and what to make of it."""
        add = parser.add_argument
        add("directory", type=local_path, metavar="DIR", help="where to look for run files, in it and below")
        add(
            "--sort",
            metavar="KEY",
            help="a column or a key of the configuration: mfu, tokens_per_s, tp (default: the newest last)",
        )
        add(
            "--where",
            action="append",
            default=[],
            metavar="CONDITION",
            help="only trainings for which it holds: tp=2, mfu>40%%, lr!=1e-4; several: all of them",
        )
        add(
            "--group",
            action="store_true",
            help="a row for each configuration, the fastest first, with the spread over its seeds",
        )
        add(
            "--read-all",
            action="store_true",
            help="read long run files whole, too: without it their summary is shown, without findings",
        )
        add_cache(parser)
        about = "text (default), markdown, html (one page that overlays the runs ticked), json or csv"
        add_output(parser, FORMATS, about)

    def run(self, args: Namespace) -> int:
        """Prints or writes it. Raises PerfError where there is no run file, or none is chosen."""
        chosen = format_of(args, FORMATS, "runs")
        output: Path | None = None if args.output == STDOUT else args.output
        found = replace(
            as_jobs(sessions_below(args.directory)),
            is_drawn=chosen == "html",
            where=args.where,
            sort=args.sort,
            is_grouped=args.group,
            origin=None if output is None else output.parent,
        )
        put_report(report_of(found, args.read_all), chosen, args.output)
        if found.kept is not None:
            found.kept.keep(is_all=not args.where)
        return 0
