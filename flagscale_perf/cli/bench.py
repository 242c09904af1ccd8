"""`flagscale-perf bench`: experiments that measure what a machine and a model can do."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from flagscale_perf.bench.environment import environment
from flagscale_perf.bench.experiment import EXPERIMENTS, HELP, Plan, load, say
from flagscale_perf.bench.recording import INSTRUMENT_NAME, Book
from flagscale_perf.cli.base import COMMAND, Command, local_path
from flagscale_perf.cli.instruments import session_of
from flagscale_perf.cli.output import page_of, pictures_of, put_next, write_all
from flagscale_perf.cli.stopping import Stop
from flagscale_perf.report import text
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.units import printable

ALL, REPORT = "all", "report"
EXIT_NOTHING, EXIT_PARTIAL = 1, 2


class BenchCommand(Command):
    """Runs experiments, and writes their files."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """A subcommand for each experiment, one for all of them, and one for the files of an earlier run."""
        actions = parser.add_subparsers(dest="action", required=True, metavar=COMMAND, help="what to measure")
        for name, about in HELP.items():
            one = actions.add_parser(name, help=about, description=about)
            load(name).add_arguments(one)
            _add_common(one)
        every = actions.add_parser(ALL, help="all of them, one after another", conflict_handler="resolve")
        for name in EXPERIMENTS:
            load(name).add_arguments(every)
        _add_common(every)
        report = actions.add_parser(REPORT, help="write the files of an earlier run again")
        report.add_argument("run", type=local_path, metavar="DIR", help="where the run file is")
        report.add_argument("--out", type=local_path, metavar="DIR", help="where files go (beside it)")

    def run(self, args: Namespace) -> int:
        """2 for an experiment that is partial, 130 for one that Ctrl-C has interrupted, 143 for SIGTERM: what
        was measured is kept. Raises PerfError for what cannot be run or read.
        """
        if args.action == REPORT:
            return report(args.run, args.out)
        return measure(args)


def _add_common(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--quick", action="store_true", help="few sizes: done in a minute or so")
    add(
        "-o",
        "--out",
        "--results-dir",
        type=local_path,
        default=Path("outputs/bench"),
        metavar="DIR",
        help="where the run file and the others go (default: outputs/bench)",
    )


def measure(args: Namespace) -> int:
    """Runs what is asked for. Raises PerfError where nothing could be begun."""
    names = tuple(EXPERIMENTS) if args.action == ALL else (args.action,)
    plans, why = {}, {}
    for name in names:
        try:
            plans[name] = load(name).prepare(args)
        except PerfError as error:
            why[name] = error
    if not plans:
        raise next(iter(why.values()))
    following = [plan.follow for plan in plans.values() if plan.follow is not None]
    if following:
        for follow in following:
            follow()
        return 0
    with Book.begin(args.out, environment() | {"experiments": list(names)}) as book:
        stop = Stop()
        try:
            with stop, stop.waiting():
                for name in names:
                    _one(book, name, plans.get(name), why.get(name))
        except KeyboardInterrupt:
            book.end("interrupted")
            say("interrupted: what was measured is kept, and marked as partial")
            report(book.path, args.out)
            return stop.code
    report(book.path, args.out)
    return EXIT_PARTIAL if book.is_partial else 0


def _one(book: Book, name: str, plan: Plan | None, why: PerfError | None) -> None:
    """An experiment that fails says so, and the next one begins."""
    planned, settings = (None, {}) if plan is None else (plan.planned, plan.settings)
    try:
        with book.part(name, planned, settings) as part:
            if plan is None:
                raise why or PerfError("it was not prepared")
            plan.measure(part)
    except PerfError as error:
        print(printable(f"{name}: {error}"), file=sys.stderr)


def report(run: Path, out: Path | None) -> int:
    """Prints the report and writes every file; 1 if nothing was measured. Raises PerfError without a run."""
    from flagscale_perf.bench.analysis import files
    from flagscale_perf.bench.analysis.report import read_report, report_of
    from flagscale_perf.report import markdown

    session = session_of(run, INSTRUMENT_NAME)
    found = read_report(session)
    whole = report_of(found)
    print(text.screen(whole), end="")
    if whole.complaint:
        print(printable(whole.complaint), file=sys.stderr)
        return EXIT_NOTHING
    directory = out or session.path.parent
    wanted: dict[str, str | bytes] = dict(files.contents(found))
    wanted[files.REPORT] = markdown.render(whole)
    wanted |= page_of(whole, files.PAGE)
    wanted |= pictures_of(files.pictures(found, whole))
    write_all(directory, wanted)
    print(printable(f"wrote {directory}: {', '.join(wanted)}"))
    put_next(run, directory / files.PAGE if files.PAGE in wanted else None)
    return 0
