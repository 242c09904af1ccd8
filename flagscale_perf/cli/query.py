"""`flagscale-perf query`: SQL over the records of a run, or of all runs below a directory."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flagscale_perf.analysis.blocks import Report, Section, Table
from flagscale_perf.analysis.lake import ask
from flagscale_perf.cli.base import Command, add_cache, local_path
from flagscale_perf.cli.instruments import say
from flagscale_perf.cli.output import add_output, format_of, put_report
from flagscale_perf.store.query import EXAMPLE, Answer

FORMATS = ("text", "csv", "json")


class QueryCommand(Command):
    """Asks what the report does not show, of one run or of a fleet's."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Arguments: where the runs are, and what is asked."""
        about = "a run file, or a directory with some in it or below"
        parser.add_argument("runs", type=local_path, metavar="RUN_OR_DIR", help=about)
        parser.add_argument("sql", metavar="SQL", help=f"one SELECT, such as {EXAMPLE!r}")
        add_cache(parser)
        add_output(parser, FORMATS, "text (default), csv or json")

    def run(self, args: Namespace) -> int:
        """Prints the answer. Raises PerfError for what cannot be answered."""
        chosen = format_of(args, FORMATS, "answer")
        put_report(_report(ask(args.runs, args.sql, say)), chosen, args.output)
        return 0


def _report(answer: Answer) -> Report:
    rows = [[None if value is None else str(value) for value in row] for row in answer.rows]
    table = Table(answer.columns, rows)
    return Report(
        _count(len(rows)),
        [],
        [Section("answer", "", "", [table])],
        answer,
        rows=[answer.columns, *answer.rows],
    )


def _count(rows: int) -> str:
    return f"{rows:,} row{'s' * (rows != 1)}"
