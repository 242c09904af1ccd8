"""What every run file holds, whichever instrument wrote it: its header, its events and its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

SCHEMA_VERSION = 1


class EventRecord(NamedTuple):
    """Something that happened once: a failure inside the monitor, a resume, a note.

    Attributes:
        name: one of "failure", "drop", "resume", "note", "clock", "suspect", "shed", "slow", "memory",
            "hardware", "rank".
        at_ns: monotonic mark.
        iteration: the last finished iteration then; 0 before the first.
        text: one line for a human.
    """

    name: str
    at_ns: int
    iteration: int
    text: str


@dataclass(frozen=True)
class RunHeader:
    """First record of a run file: what ran, on what, by which conventions.

    Attributes:
        schema_version: `SCHEMA_VERSION` of the writer.
        session_id: local start time `YYYYmmdd_HHMMSS`, with `_2`, `_3` ... where that second is taken.
        start_wall_ns: Unix time of the start.
        start_mono_ns: monotonic mark of the same instant.
        facts: flat, JSON-ready; keys are fixed by `RunFacts`.
        config: the `PerfConfig` in force, as a dict.
    """

    schema_version: int
    session_id: str
    start_wall_ns: int
    start_mono_ns: int
    facts: dict[str, Any]
    config: dict[str, Any]


@dataclass(frozen=True)
class RunEnd:
    """Last record of a run file, save for events about trouble with the last writing; absent while the run
    lives or when the writer died with it.

    Attributes:
        reason: "completed", "exit CODE", "exception NAME", "interrupted" or "killed".
        end_wall_ns: Unix time.
        last_iteration: last finished iteration; 0 if none.
        dropped: records lost because the ring was full.
    """

    reason: str
    end_wall_ns: int
    last_iteration: int
    dropped: int
