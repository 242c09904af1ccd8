"""The pipe from a writer process to the process it writes for: one end each."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator

from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.units import printable
from flagscale_perf.writer.messages import Figures, Finished, Line, Message, Trouble, decode, encode

CHECK_S = 1.0
MAX_UNREAD_BYTES = 1 << 18
_BUSY_S = 0.04


class Outlet:
    """The writer's end; never waits for the reader."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting = b""
        self._unshown = 0  # since the last message that had room
        os.set_blocking(fd, False)

    def send(self, message: Message) -> None:
        """Sends the message as soon as the pipe takes it; where too much waits already, how many there were
        is sent later.
        """
        if isinstance(message, Line | Trouble):
            message = message._replace(text=printable(message.text))
        if len(self._waiting) >= MAX_UNREAD_BYTES:
            self._unshown += 1
        elif isinstance(message, Line | Figures | Trouble):
            self._say_unshown()
            self._waiting += encode(message)
        self.push()

    def finish(self) -> None:
        """Sends `Finished`; gives a busy console a moment."""
        self._say_unshown()
        self._waiting += encode(Finished())
        self.push()
        deadline_ns = monotonic_ns() + NS_PER_S
        while self._waiting and monotonic_ns() < deadline_ns:
            time.sleep(_BUSY_S)
            self.push()

    def _say_unshown(self) -> None:
        if self._unshown:
            text = f"flagscale_perf: {self._unshown} lines are not shown here: they were not taken in time"
            self._unshown = 0
            self._waiting += encode(Trouble(text))

    def push(self) -> None:
        """Hands over as much as the pipe takes now."""
        try:
            while self._waiting:
                self._waiting = self._waiting[os.write(self._fd, self._waiting) :]
        except BlockingIOError:
            return  # the console is busy: later
        except OSError:
            self._waiting = b""  # the reading end is closed


def messages_of(writer: subprocess.Popen[bytes], check: Callable[[], None]) -> Iterator[Message]:
    """What the writer sends, until it has finished or died. `check` is called after each second of silence.

    A child forked by the training may hold the pipe's other end, so the pipe's end alone says nothing.
    """
    if writer.stdout is None:
        return
    fd = writer.stdout.fileno()
    os.set_blocking(fd, False)
    poll = select.poll()  # not select(): a training may have more than 1024 descriptors
    poll.register(fd, select.POLLIN)
    rest = b""
    while True:
        if not poll.poll(CHECK_S * 1000):
            if writer.poll() is not None:
                return
            check()
            continue
        try:
            chunk = os.read(fd, 1 << 16)
        except BlockingIOError:
            continue
        if not chunk:
            return
        *lines, rest = (rest + chunk).split(b"\n")
        for message in map(decode, lines):
            if isinstance(message, Finished):
                return
            yield message
