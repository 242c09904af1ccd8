"""Ends a server's wait: by a call of `ring` from any thread, or by a signal."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_END_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Wake:
    """A pipe that is polled along with other descriptors.

    Python runs the handler of a signal between two of its instructions. One that comes right before a wait
    begins would be forgotten until the wait ends; so signals write into the pipe themselves.

    Attributes:
        descriptor: readable from `ring` on; -1 once it is closed.
    """

    def __init__(self) -> None:
        self.descriptor, self._end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def ring(self) -> None:
        """Ends the wait; may be called from any thread or signal handler. Does nothing after `close`."""
        if self._end >= 0:
            with suppress(OSError):  # full: it is readable then
                os.write(self._end, b"\0")

    def drain(self) -> None:
        """Resets it, so that the next wait waits again."""
        with suppress(BlockingIOError):
            while os.read(self.descriptor, 512):
                pass

    @contextmanager
    def rung_by_signals(self, stop: Callable[[], None]) -> Iterator[None]:
        """While active, SIGINT and SIGTERM call `stop`; on the main thread only, as Python requires."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, frame: FrameType | None) -> None:
            stop()

        woken = signal.set_wakeup_fd(self._end, warn_on_full_buffer=False)
        before = {number: signal.signal(number, handle) for number in _END_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(woken)

    def close(self) -> None:
        """May be called repeatedly."""
        if self._end >= 0:
            end, self._end = self._end, -1
            os.close(end)
            os.close(self.descriptor)
            self.descriptor = -1
