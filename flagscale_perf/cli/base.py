"""What a command is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from argparse import ArgumentParser, Namespace


class Command(ABC):
    """One command of `flagscale-perf`: the class `<Name>Command` in the file `cli/<name>.py`.

    A command gets its answer from analysis and report (or hosts, device ...) and prints it; it computes
    nothing itself.
    """

    def add_arguments(self, parser: ArgumentParser) -> None:  # noqa: B027 - a command without arguments leaves it as it is
        """Adds the command's own arguments to its parser."""

    @abstractmethod
    def run(self, args: Namespace) -> int:
        """Does it; returns the exit code. Raises PerfError for a mistake of the user: its text goes to
        stderr, exit 2.
        """
