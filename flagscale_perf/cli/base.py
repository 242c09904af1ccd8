"""The interface of a command of `flagscale-perf`."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from argparse import ArgumentParser, ArgumentTypeError, Namespace, _ActionsContainer
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn, TypeVar

from flagscale_perf.spine.errors import PerfError, did_you_mean

_CHOICE = re.compile(
    r"argument (?P<what>\S+): invalid choice: '(?P<word>.*)' \(choose from (?P<all>.*)\)", re.DOTALL
)
COMMAND = "COMMAND"
Typed = TypeVar("Typed")
_UNKNOWN = "unrecognized arguments: "
_NUMBER = re.compile(r"(?P<what>.*): invalid (?P<type>int|float) value: (?P<word>.*)", re.DOTALL)
_KINDS = {"int": "a whole number", "float": "a number"}


class Parser(ArgumentParser):
    """Says in one line what is wrong, with the nearest right word, and in a second one where help is."""

    def error(self, message: str) -> NoReturn:
        """Ends the program with exit code 2."""
        from flagscale_perf.spine.units import printable  # here: --help needs nothing of it

        said = printable(self._explained(message))
        self.exit(2, f"{self.prog}: {said}\n`{self.prog} --help` explains how it is used\n")

    def _explained(self, message: str) -> str:
        if found := _CHOICE.fullmatch(message):
            choices = found["all"].replace("'", "").split(", ")
            near = did_you_mean(found["word"], choices)
            if found["what"] == COMMAND:
                return f"{found['word']!r} is not a command{near}"
            return f"argument {found['what']}: {found['word']!r} is none of {', '.join(choices)}{near}"
        if message.startswith(_UNKNOWN):
            words = message.removeprefix(_UNKNOWN)
            first = words.split()[0].split("=")[0] if words.split() else ""
            is_option = first.startswith("-")
            near = did_you_mean(first, self._option_string_actions, most=1) if is_option else ""
            return f"{words} is {'no option' if is_option else 'one argument too many'}{near}"
        if found := _NUMBER.fullmatch(message):
            return f"{found['what']}: {found['word']} is not {_KINDS[found['type']]}"
        return message


class Command(ABC):
    """One command of `flagscale-perf`: the class `<Name>Command` in the file `cli/<name>.py`.

    A command prints what analysis, report, hosts or device return, and computes nothing itself.

    Attributes:
        is_intermixed: options may stand between its words.
    """

    is_intermixed = False

    def add_arguments(self, parser: ArgumentParser) -> None:  # noqa: B027 - not abstract: many commands have no arguments
        """Adds the command's own arguments to its parser."""

    @abstractmethod
    def run(self, args: Namespace) -> int:
        """Returns the exit code. Raises PerfError for a user's mistake: text on stderr, exit code 2."""


def typed(parse: Callable[[str], Typed]) -> Callable[[str], Typed]:
    """A type of an option, of what reads its value and raises PerfError for a wrong one."""

    def checked(text: str) -> Typed:
        try:
            return parse(text)
        except PerfError as error:
            raise ArgumentTypeError(str(error)) from None

    return checked


@typed
def local_path(text: str) -> Path:
    """A type of an option: a path, `~` expanded. Raises ArgumentTypeError for an address."""
    from flagscale_perf.spine import files  # here: --help needs nothing of it

    return Path(files.local_path(text))


def add_run(parser: ArgumentParser) -> None:
    """Adds the argument that says where the run is."""
    parser.add_argument(
        "run",
        type=local_path,
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


def add_count(parser: ArgumentParser, flag: str, about: str, default: int | None = None) -> None:
    """Adds an option whose value is a whole number, 1 or more."""
    parser.add_argument(flag, type=whole_number, default=default, metavar="N", help=about)


def add_choice(parser: ArgumentParser, flag: str, words: Iterable[str], about: str) -> None:
    """Adds an option whose value is one of these words; the first is its default."""
    choices = tuple(words)
    parser.add_argument(flag, choices=choices, default=choices[0], help=about)


def add_cache(parser: ArgumentParser) -> None:
    """Adds the option to read everything anew."""
    about = "read everything anew, and keep nothing beside the run files or in the user's cache"
    parser.add_argument("--no-cache", action="store_true", help=about)


def add_session(parser: _ActionsContainer) -> None:
    """Adds the option that chooses one of a directory's sessions, to a parser or to a group of options."""
    parser.add_argument(
        "--session",
        metavar="ID",
        help="a session of the directory, such as 20240129_103000 (default: the newest)",
    )


def add_instrument(parser: _ActionsContainer) -> None:
    """Adds the option that chooses what one instrument recorded of the job."""
    parser.add_argument(
        "--instrument",
        metavar="NAME",
        help="of the job, only what this instrument recorded, such as training or profile (default: all)",
    )
