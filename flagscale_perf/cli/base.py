"""What every command of `flagscale-perf` is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from argparse import ArgumentParser, Namespace


class Command(ABC):
    """One command of `flagscale-perf`: the class `<Name>Command` in the file `cli/<name>.py`.

    A command prints what analysis, report, hosts or device return, and computes nothing itself.
    """

    def add_arguments(self, parser: ArgumentParser) -> None:  # noqa: B027 - not abstract: many commands have no arguments
        """Adds the command's own arguments to its parser."""

    @abstractmethod
    def run(self, args: Namespace) -> int:
        """Returns the exit code. Raises PerfError for a user's mistake: text on stderr, exit code 2."""
