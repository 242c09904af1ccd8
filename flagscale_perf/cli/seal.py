"""`flagscale-perf seal`: makes the tables of all run files below a directory, for `query` and other programs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flagscale_perf.cli.base import Command, local_path
from flagscale_perf.cli.instruments import say
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.store.run_file import RunFile
from flagscale_perf.store.runs import find_runs
from flagscale_perf.store.seal import seal

EXIT_NOT_ALL = 1


class SealCommand(Command):
    """Puts each run file's records beside it as Parquet, so that the next reading of a long run takes no time."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Argument: where the run files are."""
        parser.add_argument(
            "directory", type=local_path, metavar="DIR", help="where run files are, in it and below"
        )

    def run(self, args: Namespace) -> int:
        """1 where a file could not be sealed. Raises PerfError where there is no run file."""
        paths, unread = find_runs(args.directory)
        made = there = rows = 0
        for path in paths:
            try:
                sealed = seal(RunFile(path))
            except (PerfError, OSError) as error:
                say(f"{path}: not sealed: {error}")
                unread.append(error)
                continue
            made, there = made + sealed.is_new, there + (not sealed.is_new)
            rows += sum(sealed.rows.values()) if sealed.is_new else 0
        print(f"sealed {made:,} run files ({rows:,} rows); {there:,} were as they are")
        return EXIT_NOT_ALL if unread else 0
