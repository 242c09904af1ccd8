"""Ctrl-C and SIGTERM, which end a command where it waits and never in the midst of what it writes."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

EXIT_BY_SIGNAL = 128  # plus its number, as shells report it
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def leave(number: int, frame: FrameType | None) -> None:
    """A signal handler: ends the command with the signal's exit code; `finally` blocks still run."""
    raise SystemExit(EXIT_BY_SIGNAL + number)


class Stop:
    """A context manager, in which these signals raise KeyboardInterrupt where `waiting` is entered, and are
    kept until then elsewhere.

    Attributes:
        number: of the signal that has come; 0 for none.
    """

    def __init__(self) -> None:
        self.number = 0
        self._is_waiting = False
        self._before: dict[int, Any] = {}

    @property
    def code(self) -> int:
        """The exit code of a command that was stopped."""
        return EXIT_BY_SIGNAL + (self.number or signal.SIGINT)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """A block that raises KeyboardInterrupt at any time, also for a signal that has come already."""
        self._is_waiting = True
        try:
            if self.number:
                raise KeyboardInterrupt
            yield
        finally:
            self._is_waiting = False

    def __enter__(self) -> Stop:
        self._before = {number: signal.signal(number, self._come) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _come(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        if self._is_waiting:
            raise KeyboardInterrupt
