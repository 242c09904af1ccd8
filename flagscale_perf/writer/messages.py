"""Messages from a writer to the process it writes for, one JSON array a line, and both ends of their pipe."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.language import live
from flagscale_perf.spine.units import printable

CHECK_S = 1.0
MAX_UNREAD_BYTES = 1 << 18
_BUSY_S = 0.04


class Line(NamedTuple):
    """A line for the host's console.

    Attributes:
        text: one line.
        pid: of the process on whose console it belongs; 0 where there is only one, or any will do.
    """

    text: str
    pid: int = 0


class Figures(NamedTuple):
    """Numbers by tag, for the host's W&B run."""

    values: dict[str, float]


class Trouble(NamedTuple):
    """A line for the trainer's stderr."""

    text: str


class Asked(NamedTuple):
    """A question to the process that is measured; see `Ring.reply`."""

    question: str


class Finished(NamedTuple):
    """Everything is written; nothing comes after it."""


class Stray(NamedTuple):
    """A line that is no message: a traceback's, or what a library has printed."""

    text: str


Message: TypeAlias = Line | Figures | Trouble | Asked | Finished | Stray
Send: TypeAlias = Callable[[Message], None]

_TYPES: dict[str, type[Line | Figures | Trouble | Asked | Finished]] = {
    "line": Line,
    "figures": Figures,
    "trouble": Trouble,
    "asked": Asked,
    "finished": Finished,
}
_NAMES = {message_type: name for name, message_type in _TYPES.items()}


def encode(message: Line | Figures | Trouble | Asked | Finished) -> bytes:
    """The message's line, newline included."""
    return (dump([_NAMES[type(message)], *message]) + "\n").encode()


def decode(line: bytes) -> Message:
    """The message of a line without its newline."""
    try:
        name, *content = json.loads(line)
        return _TYPES[name](*content)
    except (ValueError, TypeError, KeyError):
        return Stray(line.decode("utf-8", "replace"))


class Outlet:
    """The writer's end of the pipe; waits for the reader in `finish` only, for a second at most."""

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
        elif isinstance(message, Line | Figures | Trouble | Asked):
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
            self._waiting += encode(Trouble(live(text)))

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
    """Yields what the writer sends until it ends. `check` is called after each second of silence.

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
