"""Ctrl-C while a program begins: what it imports takes a moment, in which nothing is under way."""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType

EXIT_INTERRUPTED = 130  # as shells report SIGINT


class Quietly:
    """A context manager in which Ctrl-C ends the process at once, in place of a traceback from the midst of
    an import. Not where Ctrl-C is ignored, as behind `nohup`. For the main thread.
    """

    def __enter__(self) -> None:
        self._is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._is_ours:
            signal.signal(signal.SIGINT, _leave)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)
