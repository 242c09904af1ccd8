"""`flagscale-perf trace-export`: writes a run as a trace for Perfetto."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from pathlib import Path

from flagscale_perf.analysis.run_file import RunFile, find_run_file
from flagscale_perf.cli.base import Command, add_run, add_session
from flagscale_perf.cli.instruments import instrument_of
from flagscale_perf.cli.output import STDOUT, check_place
from flagscale_perf.report.trace import trace_lines
from flagscale_perf.spine.errors import PerfError


class TraceExportCommand(Command):
    """Writes a run as a trace for Perfetto or chrome://tracing."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Where the run is and where the trace goes."""
        add_run(parser)
        add_session(parser)
        parser.add_argument(
            "-o",
            "--output",
            type=Path,
            metavar="FILE",
            help="default: perf_trace_<session>.json here; - for stdout",
        )

    def run(self, args: Namespace) -> int:
        """Writes the file, says where and what was skipped. Raises PerfError where there is no run or no
        room.
        """
        if args.output not in (None, STDOUT):
            check_place(args.output)
        run = RunFile(find_run_file(args.run, args.session))
        timeline = instrument_of(run.header).timeline(run.header)
        lines = trace_lines(run.header, timeline.items(run))
        if args.output == STDOUT:
            sys.stdout.writelines(lines)
        else:
            path = args.output or Path(f"perf_trace_{run.path.stem.removeprefix('perf_records_')}.json")
            _write(path, lines)
            print(f"{path}: open it at https://ui.perfetto.dev or chrome://tracing")
        if run.skipped:
            first = run.bad_lines[0]
            print(
                (
                    f"{run.skipped} lines are no records and were left out; the first: "
                    f"{run.path}:{first.number}: {first.reason}"
                ),
                file=sys.stderr,
            )
        return 0


def _write(path: Path, lines: Iterable[str]) -> None:
    try:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(lines)
    except OSError as error:
        raise PerfError(f"cannot write {str(path)!r}: {error.strerror}; give another one with -o") from None
