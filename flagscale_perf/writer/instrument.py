"""The interface between a writer and the instrument whose records it writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from flagscale_perf.sinks.base import Presentation
from flagscale_perf.spine.records import Record
from flagscale_perf.writer.task import Parent, WriterTask


class Remark(NamedTuple):
    """Name and text of an `EventRecord` that the writer makes.

    Attributes:
        name: of the event.
        text: one line.
        is_urgent: goes to stderr, too.
    """

    name: str
    text: str
    is_urgent: bool = False


Entry: TypeAlias = Record | Remark  # what goes into the run file


class Joined(NamedTuple):
    """Records made from slots of the ring.

    Attributes:
        records: for the run file, in their order.
        slots: how many of the oldest slots they use up; the next call gets the others again.
    """

    records: list[Record]
    slots: int


class Instrument(Protocol):
    """Makes the records of a run file, and what follows from them, out of those of the ring. Does no I/O on
    the run's files; no method blocks for long.

    Attributes:
        name: of the instrument, for the header.
        presentation: how its records are shown.
        joined: the types of record that `join` makes.
        period_s: how long the writer sleeps before it looks into the ring again: what a view is behind.
        position: what events and the run's end give as the last iteration; 0 before the first.
    """

    name: str
    presentation: Presentation
    joined: tuple[type, ...]
    period_s: float

    @property
    def position(self) -> int:
        """The last iteration so far; 0 before the first."""

    def begin(self) -> None:
        """Forgets every record: the session begins, or is about to be read again."""

    def replay(self, record: Record, dropped: int) -> None:
        """Takes a record that the session's earlier writer has written."""

    def owed(self) -> list[Entry]:
        """Called after the last replayed record: entries that the earlier writer did not get to write."""

    def join(self, slots: Sequence[Record], is_full: bool) -> Joined:
        """Makes records for the run file. `is_full`: the ring holds more, so what is missing may be lost."""

    def fold(self, record: Record, dropped: int) -> list[Entry]:
        """Entries to write after a joined record. `dropped`: records lost so far."""

    def collect(self) -> list[Entry]:
        """Entries that arrived from outside the ring since the last call."""

    def close(self, dropped: int) -> list[Entry]:
        """Entries to write before the run's end."""


# Makes the instrument of a writer process, or, without a parent, of a thread in the process that is measured.
MakeInstrument: TypeAlias = Callable[[WriterTask, Parent | None], Instrument]
