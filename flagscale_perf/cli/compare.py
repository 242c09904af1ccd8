"""`flagscale-perf compare`: whether one run is slower than another, and in which phase."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter

from flagscale_perf.analysis.compare.compare import (
    DEFAULT_WARMUP,
    NOT_SLOWER,
    STATISTICS,
    CompareOptions,
    Gate,
)
from flagscale_perf.analysis.compare.jobs import are_trees, compare_jobs, compare_trees
from flagscale_perf.analysis.compare.judge import SLOWER
from flagscale_perf.analysis.job import Job
from flagscale_perf.cli.base import Command, add_cache, add_choice, add_instrument, local_path, percentage
from flagscale_perf.cli.instruments import say
from flagscale_perf.cli.output import add_output, format_of, put_report
from flagscale_perf.spine.errors import PerfError

EXIT_SLOWER, EXIT_UNDECIDED = 1, 3
FORMATS = ("text", "markdown", "html", "json", "png")
_EXIT_CODES = """exit codes:
  0  not slower: with --fail-if-slower the whole 95 % interval of the change lies below PERCENT;
     without it always
  1  slower: by more than noise, and by more than PERCENT; where a run changed within itself, in any
     stretch between its changes
  2  a mistake: no such run, too few iterations, runs that mean nothing to each other
  3  undecided: the interval reaches beyond PERCENT; or something from outside may be all there is:
     NEW is slower by no more than what disturbed it took (short of CPU or memory, clocks capped, or it
     stood still), or would be slower than a BASE without it; or a run was compared with itself
"""


class CompareCommand(Command):
    """Says whether one configuration is slower than another, in which phase, and by more than noise."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Arguments: the runs, what is too slow, the form."""
        add = parser.add_argument
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.epilog = _EXIT_CODES
        a_run = "a --perf-log-dir (its newest job), one perf_records_*.jsonl, or a directory of many runs"
        add("base", type=local_path, metavar="BASE", help=f"the run to compare with: {a_run}")
        add("new", type=local_path, metavar="NEW", help="the run in question")
        # What a shell makes of BASE/* NEW/*.
        add("further", type=local_path, nargs="*", default=[], help=SUPPRESS)
        for side in ("base", "new"):
            add(
                f"--more-{side}",
                type=local_path,
                nargs="+",
                action="extend",
                default=[],
                metavar="RUN",
                help=f"further runs of {side.upper()}'s configuration; from three a side the noise between"
                " runs is measured, not assumed",
            )
        _add_judging(parser)
        add_instrument(parser)
        add_cache(parser)
        add_output(parser, FORMATS, "text (default), markdown, html, json or png")

    def run(self, args: Namespace) -> int:
        """Prints or writes it. Raises PerfError where there is nothing to compare."""
        if args.further:
            raise PerfError(
                f"{2 + len(args.further)} runs given: BASE and NEW are one run each; name further ones with "
                "--more-base and --more-new, or two directories whose runs are paired by configuration"
            )
        chosen = format_of(args, FORMATS, "comparison")
        options = CompareOptions(args.warmup, args.noise, args.fail_if_slower, args.judge)
        sides = [args.base, *args.more_base], [args.new, *args.more_new]
        if args.instrument is None and are_trees(args.base, args.new):
            if chosen == "png":
                raise PerfError("--format png: two directories of runs have no picture; write html instead")
            report, gate = compare_trees(*sides, options)
        else:
            base, new = ([Job(path).whole(args.instrument) for path in side] for side in sides)
            for one in (*base, *new):
                for remark in [*one.lead.aside, *one.apart]:
                    say(f"{one.lead.path}: {remark}")
            report, gate = compare_jobs(base, new, options)
        put_report(report, chosen, args.output)
        return _exit_code(gate)


def _add_judging(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--fail-if-slower",
        type=percentage,
        metavar="PERCENT",
        help="whether NEW is slower by more than this, such as 3%%: exit codes 0, 1 and 3, see below",
    )
    add_choice(
        parser,
        "--judge",
        STATISTICS,
        "statistic to compare: median (default), or mean, in which slow iterations count as they do in"
        " tokens/s",
    )
    add(
        "--noise",
        type=percentage,
        metavar="PERCENT",
        help="standard deviation to assume between the medians of two runs of one configuration (default:"
        " 1%%; CPU rehearsals: 4%%)",
    )
    about = "iterations to leave out after a start (default: %(default)s)"
    add("--warmup", type=_count, default=DEFAULT_WARMUP, metavar="N", help=about)


def _exit_code(gate: Gate | None) -> int:
    if gate is None or gate.outcome == NOT_SLOWER:
        return 0
    return EXIT_SLOWER if gate.outcome == SLOWER else EXIT_UNDECIDED


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)
