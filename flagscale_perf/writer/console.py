"""Prints a writer's messages in the measured process: on the host's console, in its W&B run, on stderr."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable

from flagscale_perf.sinks.wandb import HostRun
from flagscale_perf.spine.errors import traceback_lines
from flagscale_perf.spine.language import live
from flagscale_perf.spine.units import put_lines
from flagscale_perf.writer.messages import Figures, Line, Message, Stray, Trouble


class Console:
    """Called on a side thread only."""

    def __init__(self, say: Callable[[str], None], debug: bool) -> None:
        """`say` prints one line on rank 0. With `debug`, lines that are no messages are printed, too."""
        self._say: Callable[[str], None] | None = say
        self._run = HostRun(self._line)
        self._debug = debug

    def show(self, message: Message) -> None:
        """Puts a message where it belongs."""
        if isinstance(message, Line):
            self._line(message.text)
        elif isinstance(message, Figures):
            self._run.log(message.values)
        elif isinstance(message, Trouble) or (isinstance(message, Stray) and self._debug):
            _print(message.text)

    def _line(self, text: str) -> None:
        try:
            if self._say is not None:
                self._say(text)
        except Exception as error:  # the host's printing is not ours to trust
            self._say = None
            complain(
                f"flagscale_perf: console: {type(error).__name__}: {error}; no more lines on it",
                *traceback_lines(self._debug),
            )


def complain(line: str, *more: str) -> None:
    """Writes a line to stderr, in the language of the locale, and below it such as a traceback's."""
    _print(live(line), *more)


def _print(*lines: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a closed stderr is no reason to end a training
        put_lines(sys.stderr, *lines)
