"""`flagscale-perf trace-export`: writes a run as a trace for Perfetto, or for another system."""

from __future__ import annotations

import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterable
from pathlib import Path

from flagscale_perf.analysis.instrument import Export, load
from flagscale_perf.analysis.job import Job
from flagscale_perf.analysis.session import Session
from flagscale_perf.cli.base import Command, add_run, add_session, local_path
from flagscale_perf.cli.instruments import exports_of, say_others
from flagscale_perf.cli.output import STDOUT, check_place, write
from flagscale_perf.report.trace import trace_lines
from flagscale_perf.spine.errors import PerfError

PERFETTO = "perfetto"


class TraceExportCommand(Command):
    """Writes a run as a trace for Perfetto; the spans of a run of TransferQueue for other systems, too."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Arguments: the run, and where the trace goes."""
        add = parser.add_argument
        add_run(parser)
        add("others", nargs="*", help=SUPPRESS)
        add_session(parser)
        add(
            "--format",
            default=PERFETTO,
            metavar="FORMAT",
            help="perfetto (default); of a run of TransferQueue also otlp",
        )
        add(
            "-o",
            "--output",
            type=local_path,
            metavar="FILE",
            help="default: perf_trace_<session>.json here; - for stdout",
        )

    def run(self, args: Namespace) -> int:
        """Raises PerfError where there is no run or no room, and for a format that the run cannot have."""
        if args.others:
            raise PerfError(
                f"{len(args.others) + 1} runs, but one is exported at a time: give each by itself, with -o;"
                " spans of one trace id stay one trace in the system that takes them"
            )
        if args.output not in (None, STDOUT):
            check_place(args.output)
        job = Job(args.run, args.session)
        session = job.session()
        export = _export(session, args.format)
        if args.output == STDOUT:
            sys.stdout.writelines(export.lines(session))
        else:
            suffix = export.suffix if args.format == PERFETTO else f"{args.format}.{export.suffix}"
            output = args.output or Path(f"perf_trace_{session.header.session_id}.{suffix}")
            try:
                write(export.lines(session), output)
            except OSError as error:
                why = f"cannot write {str(output)!r}: {error.strerror}; give another one with -o"
                raise PerfError(why) from None
            print(f"{output}: {export.about}")
        _say_skipped(session)
        if args.session is None:
            say_others(job, [session])
        return 0


def _export(session: Session, name: str) -> Export:
    if name == PERFETTO:
        return Export(_perfetto, "json", "open it at https://ui.perfetto.dev or chrome://tracing")
    offered = exports_of(session)
    if name not in offered:
        known = ", ".join([PERFETTO, *offered])
        raise PerfError(f"--format {name}: this run can be written as {known}")
    return offered[name]


def _perfetto(session: Session) -> Iterable[str]:
    return trace_lines(session.header, session.items(load(session.header.instrument).timeline(session)))


def _say_skipped(session: Session) -> None:
    for file in session.files:
        if file.skipped:
            first = file.bad_lines[0]
            print(
                f"{file.skipped} lines are not records and were left out; the first: "
                f"{file.path}:{first.number}: {first.reason}",
                file=sys.stderr,
            )
