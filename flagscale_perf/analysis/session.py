"""A session read back: the run files of one job as one, and how it went; the same while it goes on."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, get_type_hints, overload

from flagscale_perf.analysis.clocks import Clocks, Move, clock_of
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.records import (
    ELSEWHERE,
    GOOD_ENDS,
    KILLED,
    NOT_KNOWN,
    RUNNING,
    TYPES,
    EventRecord,
    Record,
    RunEnd,
    RunHeader,
    kind_of,
)
from flagscale_perf.spine.session import labels_of
from flagscale_perf.store.decoder import Chunk
from flagscale_perf.store.evidence import not_known
from flagscale_perf.store.progress import Progress
from flagscale_perf.store.run_file import Reading, RunFile, SkippedLine
from flagscale_perf.store.strangers import no_run_in

Kind = TypeVar("Kind")
MAX_EVENTS = 20
STATES = {True: RUNNING, False: KILLED, None: NOT_KNOWN}  # without an end, by whether there is a writer
MARKS = {"start_ns", "at_ns"}  # fields that are marks, beside the one by which a type is placed


def tone_of(state: str) -> str:
    """The colour of a state: green is what needs no attention."""
    if state == NOT_KNOWN:
        return "warn"
    return "good" if state in GOOD_ENDS or state == RUNNING else "bad" if state else ""


def state_of(states: Sequence[str]) -> str:
    """The state of a job whose run files have these: the first bad one, else `running` if any is, else `not
    known`.
    """
    order = {RUNNING: 2, NOT_KNOWN: 1}
    return max(states, key=lambda state: 3 if tone_of(state) == "bad" else order.get(state, 0))


class Course:
    """How a session goes, as far as its records have been read.

    Attributes:
        has_hosts: processes of several hosts are told apart.
        kinds: records by their kind.
        events: the first `MAX_EVENTS` lines about trouble.
        elsewhere: where records are that a disk did not take.
        end: of the file that is being read; None until it is recorded.
        is_over: every file has its end.
        dropped: records that a ring had no room for, by the ends of the files.
        processes: by number, as last recorded.
    """

    def __init__(self, has_hosts: bool = False) -> None:
        self.has_hosts = has_hosts
        self.clear()

    def clear(self) -> None:
        """Forgets all that was read."""
        self.kinds: Counter[str] = Counter()
        self.events: list[str] = []
        self.elsewhere: list[str] = []
        self.dropped = 0
        self.processes: dict[int, ProcessRecord] = {}
        self._labels: dict[int, str] = {}
        self._names: dict[tuple[int, int], str] = {}
        self._hosts: dict[str, str] = {}  # with the first session on each
        self._at = ""
        self._ends: dict[str, RunEnd | None] = {}

    def add(self, record: Record) -> None:
        """Adds the next record."""
        self.kinds[kind_of(type(record))] += 1
        match record:
            case NameRecord():
                self._names[record.process, record.number] = record.text
            case ProcessRecord():
                self.processes[record.number] = record
                self._labels[record.number] = f"{record.title} {record.pid}{self._at * self.has_hosts}"
            case EventRecord():
                self.elsewhere += [record.text] * record.text.startswith(ELSEWHERE)
                self.events += [f"{record.name}: {record.text}"] * (len(self.events) < MAX_EVENTS)
            case RunHeader():
                self._at = self._place(str(record.host), record.session_id)
                self._ends.setdefault(self._at, None)
                self.has_hosts |= len(self._ends) > 1
            case RunEnd():
                self._ends[self._at] = record
                self.dropped += record.dropped

    @property
    def end(self) -> RunEnd | None:
        """Of the file that is being read; None until it is recorded."""
        return self._ends.get(self._at)

    @property
    def is_over(self) -> bool:
        """Whether every file has its end."""
        return None not in (self._ends or {"": None}).values()

    def state(self, has_writer: bool | None) -> str:
        """The worst reason of an end; for files without one `running`, `killed` where there is no writer, or
        `not known`.
        """
        reasons = [end.reason for end in self._ends.values() if end]
        if not self.is_over:
            reasons.append(STATES[has_writer])
        return state_of(reasons)

    def name(self, process: int, number: int) -> str:
        """The text behind a number of a process; 0 is none."""
        return self._names.get((process, number), f"name {number}") if number else ""

    def label(self, process: int) -> str:
        """Title and pid of a process, with its host where there are several."""
        return self._labels.get(process, f"process {process}{self._at * self.has_hosts}")

    @property
    def lost(self) -> int:
        """Records that were made and did not arrive, by the processes' own numbers."""
        return sum(each.lost or 0 for each in self.processes.values())

    @property
    def uncertain(self) -> list[str]:
        """Processes that were gone before it was known what they had left."""
        ended = [number for number, each in self.processes.items() if each.end and each.lost is None]
        return [self._labels[number] for number in ended]

    def _place(self, host: str, session_id: str) -> str:
        """The end of the names of a file's processes; it tells containers of one host apart."""
        is_first = self._hosts.setdefault(host, session_id) == session_id
        return f"@{host}" if is_first else f"@{host}/{session_id}"


class Session:
    """The records of a job's run files, one for each of its machines, as if one machine had written all:
    their marks are on the first file's clock, and their processes have numbers that no other one has. Each
    reading begins anew, so that a running session is seen as it is then. Logs of another program, which an
    instrument reads, are a session, too.

    Attributes:
        files: the first one first; each counts its bad lines once it has been read. None of logs.
        logs: the logs, or a directory of them; none of a session.
        instrument: that recorded it, or reads the logs.
        path: of the first file or log.
        course: how it went, as far as it has been read.
        aside: what has to be known of other files near these, one line each.
    """

    def __init__(
        self,
        files: Sequence[RunFile],
        logs: Sequence[Path] = (),
        instrument: str = "",
        aside: Sequence[str] = (),
    ) -> None:
        """Of files or of an instrument's logs; `analysis.job` opens them."""
        self.files, self.logs, self.aside = files, logs, aside
        self.path = self.paths[0]
        self.instrument = files[0].header.instrument if files else instrument
        self.course = Course(has_hosts=len(files) > 1)
        self._progress = Progress()
        self._states: list[str] = []
        self._remarks: list[str] = []

    @property
    def header(self) -> RunHeader:
        """Of the first file. Raises PerfError for a log, which is no run file."""
        if not self.files and self.path.is_dir():
            raise no_run_in(self.path, os.listdir(self.path))
        return (self.files[0] if self.files else RunFile(self.path)).header

    @cached_property
    def clocks(self) -> Clocks:
        """How the clocks of its machines lie to one another, by what the instrument knows of messages."""
        from flagscale_perf.analysis.instrument import clocks_of  # which builds on sessions

        return clocks_of([self])

    @overload
    def records(self) -> Iterator[Record]: ...

    @overload
    def records(self, kind: type[Kind]) -> Iterator[Kind]: ...

    def records(self, kind: type[Any] = object) -> Iterator[Any]:
        """Every record in the order of the files, or those of a type of the instrument's module `records`,
        by a reading of its own, beside which others may go on. Raises PerfError if a file cannot be read.
        """
        return (record for record in self.again() if isinstance(record, kind))

    def again(self) -> Session:
        """The same session, for a reading of its own."""
        files = [RunFile(file.path) for file in self.files]
        return Session(files, self.logs, self.instrument, self.aside)

    @property
    def paths(self) -> list[Path]:
        """Of the files, or the logs."""
        return [file.path for file in self.files] or [*self.logs]

    @property
    def size_bytes(self) -> int:
        """Of all of them. Raises PerfError."""
        try:
            return sum(path.stat().st_size for path in self.paths)
        except OSError as error:
            raise PerfError(f"cannot read {str(self.path)!r}: {error.strerror}") from None

    def is_live(self) -> bool | None:
        """Whether a writer still has one of the files; None where that cannot be known: a copy, another
        machine's or container's run, a file system without locks. Raises PerfError.
        """
        found = {file.is_live() for file in self.files}
        return True if True in found else None if None in found else False

    def __iter__(self) -> Iterator[Record]:
        """Every record, each file's behind its header. Raises PerfError if a file cannot be read."""
        return self.chunks()

    def check(self, instrument: str, instead: str) -> None:
        """Raises PerfError for a session of another instrument, with what to do `instead`, and for one whose
        id is none.
        """
        if self.header.instrument != instrument:
            raise PerfError(
                f"{str(self.path)!r} was recorded by the instrument {self.header.instrument!r}, not by"
                f" {instrument!r}; {instead}"
            )
        labels_of(self.header)

    def chunks(
        self,
        types: AbstractSet[Any] = frozenset(),
        beside: AbstractSet[Any] = frozenset(),
        into: Sequence[Any] = (),
    ) -> Iterator[Chunk | Record]:
        """Every record, those of these types in chunks, see `Chunk.parts`. Raises PerfError if a file cannot
        be read.

        Args:
            types: a chunk has all of these that follow one another.
            beside: types whose place among the others does not matter: they come first, and end no chunk.
            into: the objects, just made, into which the caller puts each part before it asks for the next
                one. Where their state was kept, they get it back, and only what is behind it follows.
        """
        for file, chunks in self._read_into(into):
            move = self.clocks.mover(clock_of(file.header))
            before = self._progress.begun[-1]
            for chunk in chunks:
                # kinds are counted in the order of the file, though what is `beside` comes first
                self.course.kinds.update(dict.fromkeys(map(kind_of, dict.fromkeys(chunk.types)), 0))
                own = _chunk_moved(chunk, before, move) if before or move else chunk
                for part in own.parts(types, beside):
                    self._follow(part)
                    yield part

    def _follow(self, part: Chunk | Record) -> None:
        if isinstance(part, Chunk):
            counts = {kind_of(each): len(found[0]) for each, found in part.columns.items()}
            self.course.kinds.update(counts)
            return
        if isinstance(part, ProcessRecord):
            self._progress.taken = max(self._progress.taken, part.number)
        self.course.add(part)

    def _read_into(self, into: Sequence[Any]) -> Iterator[tuple[RunFile, Iterator[Chunk]]]:
        """The files to be read; behind them it is known how each ended."""
        self.course.clear()
        self._states, self._remarks = [], []
        movers = {file: self.clocks.mover(clock_of(file.header)) for file in self.files}
        self._progress = Progress([move(file.header.start_mono_ns) for file, move in movers.items() if move])
        yield from self._progress.read(
            self.files, [*into, self.course] if into else (), lambda: self.course.end
        )
        self._remarks += self.course.elsewhere
        self._remarks += self.clocks.lines() if len(self.files) > 1 else ()
        for file, end in zip(self.files, self._progress.ends, strict=True):
            state = end.reason if end else STATES[file.is_live()]
            self._states.append(state)
            which = f"{file.path.name}: " if len(self.files) > 1 else ""
            if file.joined:
                self._remarks.append(which + file.joined)
            if state == NOT_KNOWN:
                self._remarks.append(which + not_known(file.last_record_ns(), time.time_ns()))

    def origin(self, process: int) -> tuple[RunFile, int]:
        """The file in which the process is, and its number there; known once that file is being read."""
        begun = self._progress.begun or [0]
        place = max(bisect_left(begun, process) - 1, 0)
        return self.files[place], process - begun[place]

    def uncertainty_ns(self, process: int, other: int, at_ns: int) -> int | None:
        """By how much times of these two processes may be apart, at a time of the first file's clock: 0 on
        one clock, None where that is not known. An arrow tells something only where it is longer.
        """
        clocks = {clock_of(self.origin(each)[0].header) for each in (process, other)}
        if len(clocks) == 1:
            return 0
        known = self.clocks
        found = [known.uncertainty_ns(clock, known.mark_of(clock, at_ns)) for clock in clocks]
        return None if None in found else sum(each or 0 for each in found)

    def _read(self) -> None:
        if not self._states:
            for _ in self:
                pass

    @property
    def state(self) -> str:
        """How it ended; of several files the worst. Reads it, where that has not been done."""
        self._read()
        return state_of(self._states)

    @property
    def begun(self) -> str:
        """When, in the first file's local time."""
        return labels_of(self.header).at(self.header.start_wall_ns).isoformat(sep=" ")

    @property
    def machines(self) -> list[str]:
        """Names of the machines that wrote these files."""
        return list(dict.fromkeys(str(file.header.host) for file in self.files))

    @property
    def reading(self) -> Reading:
        """What was read, and what could not be. Reads it, where that has not been done."""
        self._read()
        bad = [SkippedLine(line.number, line.reason) for file in self.files for line in file.bad_lines]
        skipped = sum(file.skipped for file in self.files)
        return Reading(str(self.path), dict(self.course.kinds), skipped, bad, [*self.aside, *self._remarks])


def moved(record: Record, before: int, move: Move | None) -> Record:
    """The record with its process numbered after those `before`, and its marks on the other clock."""
    changes = _changes(type(record), before, move)
    changed = {name: change(getattr(record, name)) for name, change in changes.items()}
    return record._replace(**changed) if hasattr(record, "_replace") else replace(record, **changed)


def _chunk_moved(chunk: Chunk, before: int, move: Move | None) -> Chunk:
    columns: dict[Any, Sequence[Sequence[Any]]] = {}
    for type_, own in chunk.columns.items():
        changes = _changes(type_, before, move)
        columns[type_] = [
            [*map(changes[name], column)] if name in changes else column
            for name, column in zip(get_type_hints(type_), own, strict=True)
        ]
    return Chunk(chunk.types, columns)


def _changes(record_type: Any, before: int, move: Move | None) -> dict[str, Move]:
    """What becomes of each field that is a mark or a process; nothing of those of a header."""
    if record_type is RunHeader:
        return {}
    names = getattr(record_type, "_fields", None) or record_type.__dataclass_fields__
    start = TYPES[record_type].start
    marks = MARKS | ({start} if start and not start.endswith("_wall_ns") else set())
    process = "number" if record_type is ProcessRecord else "process"
    changes = dict.fromkeys(marks, move) if move else {}
    changes |= {process: before.__add__}
    return {name: change for name, change in changes.items() if name in names}
