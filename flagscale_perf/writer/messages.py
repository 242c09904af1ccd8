"""What a writer sends to the process it writes for: one JSON array a line over the pipe of its stdout."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from flagscale_perf.spine.jsonl import dump


class Line(NamedTuple):
    """For the host's console.

    Attributes:
        text: one line.
        pid: of the process on whose console it belongs; 0 where there is only one, or any will do.
    """

    text: str
    pid: int = 0


class Figures(NamedTuple):
    """For the host's W&B run: numbers by tag."""

    values: dict[str, float]


class Trouble(NamedTuple):
    """A line for the trainer's stderr."""

    text: str


class Finished(NamedTuple):
    """Everything is written; nothing comes after it."""


class Stray(NamedTuple):
    """A line that is no message: a traceback's, or what a library has printed."""

    text: str


Message: TypeAlias = Line | Figures | Trouble | Finished | Stray
Send: TypeAlias = Callable[[Message], None]

_TYPES: dict[str, type[Line | Figures | Trouble | Finished]] = {
    "line": Line,
    "figures": Figures,
    "trouble": Trouble,
    "finished": Finished,
}
_NAMES = {message_type: name for name, message_type in _TYPES.items()}


def encode(message: Line | Figures | Trouble | Finished) -> bytes:
    """The message's line, newline included."""
    return (dump([_NAMES[type(message)], *message]) + "\n").encode()


def decode(line: bytes) -> Message:
    """The message of a line without its newline."""
    try:
        name, *content = json.loads(line)
        return _TYPES[name](*content)
    except (ValueError, TypeError, KeyError):
        return Stray(line.decode("utf-8", "replace"))
