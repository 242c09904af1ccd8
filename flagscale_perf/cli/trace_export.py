"""`flagscale-perf trace-export`: writes a job as one trace for Perfetto, or as spans for another system."""

from __future__ import annotations

import importlib
import re
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flagscale_perf.analysis.drawing import Chosen, Drawing, Size
from flagscale_perf.analysis.job import Job
from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.timeline import Drawn
from flagscale_perf.analysis.whole import Whole, whole_of
from flagscale_perf.cli.base import Command, add_run, add_session, local_path, typed
from flagscale_perf.cli.instruments import say
from flagscale_perf.cli.output import STDOUT, check_place, size_of, write
from flagscale_perf.options.values import parse_ranks
from flagscale_perf.spine.errors import PerfError, did_you_mean

PERFETTO, OTLP = "perfetto", "otlp"
MOST_BYTES = 100e6  # without --yes; a browser takes several times as much memory
_PROTOBUF, _ARCHIVE = (".pftrace", ".perfetto-trace"), ".tar"
_STEPS = re.compile(r"(\d+)(?::(\d+))?")


class _Form(NamedTuple):
    """What is written.

    Attributes:
        module: of `flagscale_perf.report`.
        suffix: of the file, without its point.
        about: what it is for, in a few words.
    """

    module: str
    suffix: str
    about: str


JSON = _Form("trace", "json", "open it at https://ui.perfetto.dev or chrome://tracing")
PFTRACE = _Form("pftrace", "pftrace", "open it at https://ui.perfetto.dev")
ARCHIVE = _Form("archive", "tar", "open it at https://ui.perfetto.dev")
SPANS = _Form(
    "otlp", "otlp.ndjson", "OpenTelemetry's protocol: lines for a collector's otlpjsonfile receiver"
)


class TraceExportCommand(Command):
    """Writes everything that was recorded of a job as one trace."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Arguments: the run, where the trace goes, and what of it."""
        add = parser.add_argument
        add_run(parser)
        add("others", nargs="*", help=SUPPRESS)
        add_session(parser)
        about = "perfetto (default), by the ending of -o: JSON, .pftrace (protobuf) or .tar; or otlp"
        add("--format", default=PERFETTO, metavar="FORMAT", help=about)
        about = "default: perf_trace_<session>.json here; - for stdout"
        add("-o", "--output", type=local_path, metavar="FILE", help=about)
        add("--steps", type=_steps, metavar="A:B", help="only what lies in these steps")
        about = "of a training only these ranks, such as 0,2-3"
        add("--ranks", type=typed(parse_ranks), metavar="LIST", help=about)
        about = "a trace of another program (and its machine) to lie beside it in an archive; may be repeated"
        add("--with", dest="beside", action="append", default=[], metavar="FILE[=HOST]", help=about)
        add("--yes", action="store_true", help=f"write more than {size_of(MOST_BYTES)}, too")

    def run(self, args: Namespace) -> int:
        """Raises PerfError where there is no run or no room, and for a format that there is not."""
        if args.others:
            raise PerfError(
                f"{len(args.others) + 1} runs, but one is exported at a time: give each by itself, with -o;"
                " spans of one trace id stay one trace in the system that takes them"
            )
        if args.output not in (None, STDOUT):
            check_place(args.output)
        form = _form(args)
        whole = Job(args.run, args.session).whole()
        header = whole.lead.header  # of logs there is none
        pieces = importlib.import_module(f"flagscale_perf.report.{form.module}").pieces
        beside = [_beside(text) for text in args.beside] if form is ARCHIVE else []
        drawing = Drawing(whole, Chosen(args.steps, args.ranks))
        _say_joined(drawing)
        _measured(drawing, _unit(form, pieces, drawing), args)
        made = pieces(drawing, beside) if form is ARCHIVE else pieces(drawing)
        _put(made, args.output, form, header.session_id)
        _say_skipped(whole)
        return 0


def put_items(session: Session, items: Iterable[Drawn], output: Path) -> None:
    """Writes these items alone, in the form that the ending of `output` says. Raises PerfError."""
    check_place(output)
    form = PFTRACE if output.suffix.lower() in _PROTOBUF else JSON
    pieces = importlib.import_module(f"flagscale_perf.report.{form.module}").pieces
    _put(pieces(Drawing(whole_of(session, ())), items), output, form, session.header.session_id)


def _form(args: Namespace) -> _Form:
    """By --format, the ending of -o, and --with."""
    suffix = "" if args.output in (None, STDOUT) else args.output.suffix.lower()
    if args.format not in (PERFETTO, OTLP):
        near = did_you_mean(args.format, [PERFETTO, OTLP])
        raise PerfError(f"--format {args.format}: this run can be written as {PERFETTO}, {OTLP}{near}")
    if args.format == OTLP:
        form = SPANS
    elif suffix == _ARCHIVE or (args.beside and not suffix):
        form = ARCHIVE
    else:
        form = PFTRACE if suffix in _PROTOBUF else JSON
    if args.beside and form is not ARCHIVE:
        raise PerfError("--with: only an archive has room for other traces; write -o NAME.tar")
    return form


def _steps(text: str) -> tuple[int, int]:
    found = _STEPS.fullmatch(text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if last < first:
        raise ArgumentTypeError(f"{text!r} are no steps; write for example 20:22")
    return first, last


def _beside(text: str) -> Any:
    from flagscale_perf.report.archive import foreign_of  # needs Perfetto's package

    path, _, host = (text, "", "") if Path(text).is_file() else text.rpartition("=")
    return foreign_of(local_path(path or text), host or None)


def _say_joined(drawing: Drawing) -> None:
    for member in drawing.whole.members:
        session = member.session
        say(f"with the {session.instrument} session {session.header.session_id}: {member.evidence}")
    for line in drawing.whole.apart:
        say(f"not with it: {line}")
    for line in drawing.clocks.lines():
        say(line)


def _unit(
    form: _Form, pieces: Callable[..., Iterator[bytes]], drawing: Drawing
) -> Callable[[Sequence[Drawn]], int]:
    """What a sample of items takes in that form."""
    if form is ARCHIVE:
        from flagscale_perf.report import pftrace

        pieces = pftrace.pieces
    return lambda items: sum(map(len, pieces(drawing, items)))


def _measured(drawing: Drawing, bytes_of: Callable[[Sequence[Drawn]], int], args: Namespace) -> Size:
    """Says how much it will be. Raises PerfError where that is too much."""
    size = drawing.measure(bytes_of, None if args.yes else MOST_BYTES)
    if size.bytes > MOST_BYTES and not args.yes:
        raise PerfError(
            f"the trace would have more than {size_of(MOST_BYTES)}, which few programs open: choose --steps"
            " A:B or --ranks LIST, or add --yes"
        )
    lost = f"; {size.lost_arrows:,} more are left out" if size.lost_arrows else ""
    if args.output != STDOUT:
        print(f"about {size_of(size.bytes)}: {size.slices:,} slices, {size.arrows:,} arrows{lost}")
    return size


def _put(made: Iterator[bytes], output: Path | None, form: _Form, session_id: str) -> None:
    if output == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.writelines(made)
        return
    output = output or Path(f"perf_trace_{session_id}.{form.suffix}")
    try:
        write(made, output)
    except OSError as error:
        why = f"cannot write {str(output)!r}: {error.strerror}; give another one with -o"
        raise PerfError(why) from None
    print(f"{output}: {form.about}")


def _say_skipped(whole: Whole) -> None:
    for session in whole.sessions:
        for file in session.files:
            if file.skipped:
                first = file.bad_lines[0]
                say(
                    f"left out, lines that are no records: {file.skipped:,}; the first: "
                    f"{file.path}:{first.number}: {first.reason}"
                )
