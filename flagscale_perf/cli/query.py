"""`flagscale-perf query`: SQL over the records of a run, or of all runs below a directory."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections import defaultdict
from pathlib import Path

from flagscale_perf.analysis.blocks import Report, Section, Table
from flagscale_perf.cli.base import Command, local_path
from flagscale_perf.cli.output import add_output, format_of, put_report
from flagscale_perf.store.query import Answer, Lake
from flagscale_perf.store.run_file import RunFile
from flagscale_perf.store.runs import find_runs
from flagscale_perf.store.seal import seal

FORMATS = ("text", "csv", "json")
VIEWS = {
    "steps": "step",
    "intervals": "interval",
    "calls": "rpc_call",
    "operations": "tq_operation",
    "modules": "profile_row",
}


class QueryCommand(Command):
    """Asks what the report does not show, of one run or of a fleet's."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Arguments: where the runs are, and what is asked."""
        add = parser.add_argument
        add(
            "runs",
            type=local_path,
            metavar="RUN_OR_DIR",
            help="a run file, or a directory with some in it or below",
        )
        add(
            "sql",
            metavar="SQL",
            help="a SELECT, such as 'select run_id, max(iteration_ns) from steps group by 1'",
        )
        add_output(parser, FORMATS, "text (default), csv or json")

    def run(self, args: Namespace) -> int:
        """Prints the answer. Raises PerfError for what cannot be answered."""
        chosen = format_of(args, FORMATS, "answer")
        paths = [args.runs] if args.runs.is_file() else find_runs(args.runs)[0]
        parts: defaultdict[str, list[Path]] = defaultdict(list)
        for path in paths:
            for kind, table in seal(RunFile(path)).files.items():
                parts[kind].append(table)
        lake = Lake(parts, VIEWS)
        try:
            put_report(_report(lake.ask(args.sql)), chosen, args.output)
        finally:
            lake.close()
        return 0


def _report(answer: Answer) -> Report:
    rows = [[None if value is None else str(value) for value in row] for row in answer.rows]
    return Report(
        "",
        [],
        [Section("answer", "", "", [Table(answer.names, rows)])],
        answer,
        rows=[answer.names, *answer.rows],
    )
