"""How the words of a command line are read, and what is said about wrong ones: two lines, never a page."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

from flagscale_perf.spine.errors import did_you_mean

_CHOICE = re.compile(
    r"argument (?P<what>\S+): invalid choice: '(?P<word>.*)' \(choose from (?P<all>.*)\)", re.DOTALL
)
COMMAND = "COMMAND"
_UNKNOWN = "unrecognized arguments: "
_NUMBER = re.compile(r"(?P<what>.*): invalid (?P<type>int|float) value: (?P<word>.*)", re.DOTALL)
_KINDS = {"int": "a whole number", "float": "a number"}


class Parser(argparse.ArgumentParser):
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
