"""`flagscale-perf seal`: makes the tables of all run files below a directory."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flagscale_perf.analysis.lake import seal_all
from flagscale_perf.cli.base import Command, local_path
from flagscale_perf.cli.instruments import say

EXIT_NOT_ALL = 1


class SealCommand(Command):
    """Puts each run file's records beside it as Parquet; what is there already stays."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Argument: where the run files are."""
        about = "where run files are, in it and below"
        parser.add_argument("directory", type=local_path, metavar="DIR", help=about)

    def run(self, args: Namespace) -> int:
        """1 where something had to be left out. Raises PerfError where there is no run file."""
        left_out: list[str] = []

        def leave_out(line: str) -> None:
            left_out.append(line)
            say(line)

        made = seal_all(args.directory, leave_out, say)
        new = [each for each in made if each.is_new]
        rows = sum(sum(each.rows.values()) for each in new)
        count = f"{len(new):,} run file{'s' * (len(new) != 1)}"
        print(f"{count} sealed, {rows:,} rows; {len(made) - len(new):,} sealed already")
        return EXIT_NOT_ALL if left_out else 0
