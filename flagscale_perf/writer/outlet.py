"""The lines that a writer process says to its trainer, over the pipe of its stdout: one end each."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator

from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.units import printable

CHECK_S = 1.0
MAX_UNHEARD_BYTES = 1 << 18
# How a line begins: what to do with it.
LOG, TROUBLE, _FINISHED = "log ", "trouble ", "finished"
_BUSY_S = 0.04


class Outlet:
    """The writer's end; never waits for the trainer."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting = b""
        os.set_blocking(fd, False)

    def log(self, line: str) -> None:
        """A line for the host's console."""
        self._send(LOG, line)

    def trouble(self, line: str) -> None:
        """A line for stderr."""
        self._send(TROUBLE, line)

    def finish(self) -> None:
        """Says that all is done; gives a busy console a moment."""
        self._send(_FINISHED, "")
        deadline_ns = monotonic_ns() + NS_PER_S
        while self._waiting and monotonic_ns() < deadline_ns:
            time.sleep(_BUSY_S)
            self.push()

    def push(self) -> None:
        """Hands over as much as the pipe takes now."""
        try:
            while self._waiting:
                self._waiting = self._waiting[os.write(self._fd, self._waiting) :]
        except BlockingIOError:
            return  # the console is busy: later
        except OSError:
            self._waiting = b""  # nobody listens any more

    def _send(self, kind: str, text: str) -> None:
        if len(self._waiting) < MAX_UNHEARD_BYTES:
            self._waiting += f"{kind}{printable(text)}\n".encode()
        self.push()


def lines_of(writer: subprocess.Popen[bytes], check: Callable[[], None]) -> Iterator[str]:
    """What the writer says, until it has finished or died. `check` is called after each second without a
    word.

    A child forked by the training may hold the pipe's other end, so the pipe's end alone does not tell.
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
        for line in lines:
            if line == _FINISHED.encode():
                return
            yield line.decode("utf-8", "replace")
