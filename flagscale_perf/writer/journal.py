"""Events that the writer makes itself, until they go into the run file."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.errors import traceback_lines
from flagscale_perf.spine.records import EventRecord, Record
from flagscale_perf.writer.instrument import Entry, Remark
from flagscale_perf.writer.messages import Send, Trouble


class Journal:
    """Makes events, and prints on stderr what a person should see at once.

    Attributes:
        waiting: records for the next batch that are in no ring.
    """

    def __init__(self, send: Send, position: Callable[[], int], with_tracebacks: bool) -> None:
        """`position`: the last finished iteration."""
        self.waiting: list[Record] = []
        self._send = send
        self._position = position
        self._with_tracebacks = with_tracebacks

    def report(self, name: str, text: str) -> None:
        """Records an event; a failure goes to stderr, too."""
        self.waiting.append(self.event(name, text))
        if name == "failure":
            self.complain(text, *traceback_lines(self._with_tracebacks))

    def complain(self, text: str, *more: str) -> None:
        """Prints lines on stderr."""
        for line in (f"flagscale_perf: {text}", *more):
            self._send(Trouble(line))

    def event(self, name: str, text: str) -> EventRecord:
        """An event of now."""
        return EventRecord(name, monotonic_ns(), self._position(), text)

    def recorded(self, entries: Iterable[Entry]) -> list[Record]:
        """The entries with an event in the place of each remark."""
        return [self._remarked(entry) if isinstance(entry, Remark) else entry for entry in entries]

    def take(self) -> list[Record]:
        """The records that wait to be written; they wait no longer."""
        waiting, self.waiting = self.waiting, []
        return waiting

    def _remarked(self, remark: Remark) -> EventRecord:
        if remark.is_urgent:
            self.complain(remark.text)
        return self.event(remark.name, remark.text)
