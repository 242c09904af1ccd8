"""What every command of `flagscale-perf` is."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from argparse import ArgumentParser, ArgumentTypeError, Namespace, _ActionsContainer
from pathlib import Path

EXIT_SLOWER, EXIT_UNDECIDED = 1, 3  # of what compares; 2 is a mistake, as for every command


class Command(ABC):
    """One command of `flagscale-perf`: the class `<Name>Command` in the file `cli/<name>.py`.

    A command prints what analysis, report, hosts or device return, and computes nothing itself.
    """

    def add_arguments(self, parser: ArgumentParser) -> None:  # noqa: B027 - not abstract: many commands have no arguments
        """Adds the command's own arguments to its parser."""

    @abstractmethod
    def run(self, args: Namespace) -> int:
        """Returns the exit code. Raises PerfError for a user's mistake: text on stderr, exit code 2."""


def add_run(parser: ArgumentParser) -> None:
    """Adds the argument that says where the run is."""
    parser.add_argument(
        "run",
        type=Path,
        metavar="RUN_DIR_OR_FILE",
        help="the --perf-log-dir of a session, or a file of it: a perf_records_*.jsonl, a log",
    )


def percentage(text: str) -> float:
    """`3%` as 0.03. Raises ArgumentTypeError."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = math.nan
    if not 0 <= percent < math.inf:
        raise ArgumentTypeError(f"{text!r} is not a percentage; write one such as 3%")
    return percent / 100


def whole_number(text: str) -> int:
    """A type of an option: 1 or more. Raises ArgumentTypeError."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number, 1 or more")
    return int(text)


def add_session(parser: _ActionsContainer) -> None:
    """Adds the option that chooses one of a directory's sessions, to a parser or to a group of options."""
    parser.add_argument(
        "--session",
        metavar="ID",
        help="a session of the directory, such as 20240129_103000 (default: the newest)",
    )
