"""The part of a writer that all instruments with many processes share: it numbers the processes and counts
the records that arrived from each.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from flagscale_perf.sinks.base import Presentation
from flagscale_perf.spine.peers.handover import Source
from flagscale_perf.spine.peers.records import ProcessRecord
from flagscale_perf.spine.peers.rings import Slot
from flagscale_perf.spine.records import EventRecord, Record, tuple_of
from flagscale_perf.writer.instrument import Entry, Joined, Remark
from flagscale_perf.writer.task import Parent, WriterTask

UNFOUND = "gone before the next writer found it"


class Ledger:
    """The records that arrived from one process.

    Attributes:
        begin: its `ProcessRecord`.
        count: numbered records so far.
        highest: the highest of their numbers.
        is_over: its end has been recorded.
    """

    def __init__(self, begin: ProcessRecord) -> None:
        self.begin = begin
        self.count = self.highest = 0
        self.is_over = False

    def add(self, record: Record) -> None:
        """One more numbered record of the process."""
        self.count += 1
        self.highest = max(self.highest, record.number)

    def close(self, source: Source) -> ProcessRecord:
        """The record of its end: why, and what it has lost."""
        ring = source.ring
        lost = max(self.highest, ring.newest_dropped) - self.count
        return replace(self.begin, end=source.end, dropped=ring.dropped, lost=max(lost, 0))


class ProcessesPipeline:
    """Gives each process a number, and says when one has come and when it is over. A subclass says what the
    instrument is.

    Attributes:
        numbered: types of record that a process numbers from 1 on without gaps, in the field `number`.
        recorded: all types that come from the processes, and have the process's number as their first field.
        things: what the numbered ones are called in a remark.
        steps: types of record that have an `iteration`.
        position: the highest iteration so far; where no type has one, numbered records so far.
    """

    name: str
    presentation: Presentation
    numbered: tuple[type, ...]
    recorded: tuple[type, ...]
    things: str
    steps: tuple[type, ...] = ()
    period_s = 0.5

    def __init__(self, task: WriterTask, parent: Parent | None) -> None:
        """Every process of the job is like any other: there is no `parent`."""
        self.joined: tuple[type, ...] = (*self.recorded, ProcessRecord, EventRecord)
        self.begin()

    def begin(self) -> None:
        """Forgets every record: the session begins, or is about to be read again."""
        self.position = 0
        self._ledgers: dict[tuple[int, int], Ledger] = {}  # by pid and start
        self._numbered: dict[int, Ledger] = {}

    def replay(self, record: Record, dropped: int) -> None:
        """Takes a record that the session's earlier writer has written."""
        if isinstance(record, ProcessRecord):
            self._open(record)
        self.fold(record, dropped)

    def owed(self) -> list[Entry]:
        """Nothing follows from the records."""
        return []

    def join(self, slots: Sequence[Slot], is_full: bool) -> Joined:
        """The slots' records, each with the number of its process."""
        records: list[Record] = []
        for source, record in slots:
            ledger = self._ledger(source, records)
            if record is None:
                if source.end is not None:
                    records.append(ledger.close(source))
            elif type(record) not in self.recorded:
                records.append(record)
            else:
                records.append(tuple_of(type(record), (ledger.begin.number, *record[1:])))
        return Joined(records, len(slots))

    def fold(self, record: Record, dropped: int) -> list[Entry]:
        """Keeps the books; a process that has lost something is remarked on."""
        if isinstance(record, ProcessRecord):
            return self._remarks(record)
        ledger = self._numbered.get(getattr(record, "process", 0))
        if ledger is not None and isinstance(record, self.numbered):
            ledger.add(record)
            if not self.steps:
                self.position += 1
            elif isinstance(record, self.steps):
                self.position = max(self.position, getattr(record, "iteration", None) or 0)
        return []

    def collect(self) -> list[Entry]:
        """There are no other places."""
        return []

    def close(self, dropped: int) -> list[Entry]:
        """Processes that an earlier writer knew, and that were not found again."""
        return [
            replace(ledger.begin, end=UNFOUND, lost=None)
            for ledger in self._numbered.values()
            if not ledger.is_over
        ]

    def _ledger(self, source: Source, records: list[Record]) -> Ledger:
        """The ledger of the source's process; the first record of a new process is added to `records`."""
        title, start_ns = _said_by(source)
        ledger = self._ledgers.get((source.pid, start_ns))
        if ledger is None:
            number = len(self._numbered) + 1
            begin = ProcessRecord(number, source.pid, title, start_ns, end=None, dropped=0, lost=0)
            ledger = self._open(begin)
            records.append(begin)
        return ledger

    def _open(self, begin: ProcessRecord) -> Ledger:
        ledger = self._numbered.setdefault(begin.number, Ledger(begin))
        self._ledgers[begin.pid, begin.start_ns] = ledger
        return ledger

    def _remarks(self, record: ProcessRecord) -> list[Entry]:
        if record.end is None:
            return []
        self._numbered[record.number].is_over = True
        if record.lost == 0 and record.dropped == 0:
            return []
        who = f"process {record.pid} ({record.title})"
        if record.lost is None:
            return [Remark("drop", f"{who}: {record.end}; what it had not handed over is lost", True)]
        text = f"{who}: {record.lost} of its {self.things} are lost, {record.dropped} records dropped"
        return [Remark("drop", text, is_urgent=True)]


def _said_by(source: Source) -> tuple[str, int]:
    try:
        title, start_ns = json.loads(source.ring.producer or "")
        return str(title), int(start_ns)
    except (ValueError, TypeError, RecursionError):
        return "", 0
