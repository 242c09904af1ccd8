"""The command line `flagscale-perf`: a list of commands. Only the chosen command's file is imported."""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import io
import os
import sys
from collections.abc import Sequence

from flagscale_perf import __version__
from flagscale_perf.cli.base import COMMAND, Command, Parser
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.interrupted import EXIT_INTERRUPTED

PROG = "flagscale-perf"

# Name and one line of help; the class `<Name>Command` is in `cli/<name>.py`.
COMMANDS = {
    "report": "summarise a finished or running session of any instrument, from its directory",
    "watch": "show a running session live in the terminal; also a finished or killed one",
    "serve": "show a run's report in a browser on this machine, and what comes while the run goes on",
    "runs": "list the runs below a directory: model, speed, goodput, findings; overlay trainings on a page",
    "query": "ask a run's records, or those of all runs below a directory, in SQL",
    "seal": "keep the records of the runs below a directory as Parquet, too: for `query` and other programs",
    "capture": "have a live training record the raw timings of all ranks for the next steps",
    "stacks": "say what every rank of a live training is doing now: phase, collective, stack of Python",
    "trace-export": (
        "write a run as a trace for Perfetto: iterations, phases, ranks and counters on one timeline"
    ),
    "compare": "compare two runs: is one slower, in which phase, and by more than noise explains",
    "what-if": "predict a change of a run from its captured steps: more micro-batches, no straggler, a split",
    "flops": "count a model's FLOPs, component by component",
    "peak": "show or measure a device's peak FLOP/s, the denominator of MFU",
    "enable": "let the training scripts of this Python environment understand --enable-perf-monitor",
    "disable": "undo `enable`",
    "profile": "write the files and pictures of a profile, or profile a model of your own",
    "bench": "measure bandwidth, latency and parallel efficiency by experiments, with verdicts and plots",
    "schema": "list every key of records and of reports in JSON, with its unit and what it means",
    "doctor": "say which host is found, which hook points are there, what is missing and what that costs",
}

LANGUAGE = "--lang"
SPEAKING = ("report", "watch", "serve", "compare", "runs", "stacks", "doctor")
GARBAGE = 50_000  # objects before a collection: a long file's records are many, and none is in a cycle
EXIT_MISTAKE = 2  # of the user; argparse's exit code, too
EXIT_BROKEN_PIPE = 141  # as shells report SIGPIPE: the reader of our output is gone, as behind `| head`


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code. Wrong usage, --help and --version raise SystemExit.

    Args:
        argv: the words after the program's name; those of the process by default.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    gc.set_threshold(GARBAGE)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # instead of raising for what it cannot encode
    try:
        code = _dispatch(words)
        sys.stdout.flush()
    except PerfError as error:
        _tell(error, words)
        return EXIT_MISTAKE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes stdout once more when it ends: into nothing, instead of raising again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    return code


def _tell(error: PerfError, words: Sequence[str]) -> None:
    from flagscale_perf.spine import language
    from flagscale_perf.spine.units import printable

    asked = dict(zip(words, words[1:], strict=False)).get(LANGUAGE)
    with language.using(language.chosen(asked if words[0] in SPEAKING else None, os.environ)):
        said = language.said(str(error))
    # Printable, for the message may quote what a file holds.
    print("\n".join(map(printable, said.split("\n"))), file=sys.stderr)


def load_command(name: str) -> Command:
    """The command of that name in `COMMANDS`, its file imported now."""
    from flagscale_perf.cli.instruments import load_records  # here, so that --help imports nothing

    load_records()
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    command: Command = getattr(module, name.title().replace("-", "") + "Command")()
    return command


def _dispatch(words: list[str]) -> int:
    top = _top_parser()
    if not words:
        top.print_help(sys.stderr)
        return EXIT_MISTAKE
    if words[0].startswith("-"):
        top.parse_args([words[0], next(iter(COMMANDS))])  # ends here, unless it is a command that is missing
    name = top.parse_args(words[:1]).command
    command = load_command(name)
    _print_plainly()
    parser = Parser(prog=f"{PROG} {name}", description=COMMANDS[name])
    command.add_arguments(parser)
    if name in SPEAKING:
        about = "English, or Chinese, in what is printed for people (default: the locale's)"
        parser.add_argument(LANGUAGE, choices=("en", "zh"), help=about)
    parse = parser.parse_intermixed_args if command.is_intermixed else parser.parse_args
    args = parse(words[1:])
    with contextlib.ExitStack() as around:
        if name in SPEAKING:
            from flagscale_perf.spine import language

            around.enter_context(language.using(language.chosen(args.lang, os.environ)))
        if getattr(args, "no_cache", False):
            from flagscale_perf.store import cache

            around.enter_context(cache.switched_off())
        return command.run(args)


def _print_plainly() -> None:
    """Bars and signs that stdout cannot encode become plain characters."""
    from flagscale_perf.spine.units import PLAINLY

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=PLAINLY)


def _top_parser() -> Parser:
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:{width}}  {text}" for name, text in COMMANDS.items())
    parser = Parser(
        prog=PROG,
        description="Know where every GPU-second of a Megatron / FlagScale run goes.",
        epilog=f"commands:\n{listing}\n\n`{PROG} COMMAND --help` explains one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{PROG} {__version__}")
    parser.add_argument("command", choices=COMMANDS, metavar=COMMAND, help="one of those below")
    return parser
