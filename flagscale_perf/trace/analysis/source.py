"""Reads traces from run files of one job or from lines in logs, summed up alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flagscale_perf.analysis.log_files import held, log_files, older_parts
from flagscale_perf.analysis.session import Course, Session
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.facts import words_of
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.store.kept import Kept
from flagscale_perf.store.run_file import Reading
from flagscale_perf.trace.analysis.log_reader import LogReader, Losses
from flagscale_perf.trace.analysis.sums import Sums
from flagscale_perf.trace.analysis.transfers import Ranges, Transfers, What, pairs_of
from flagscale_perf.trace.records import (
    KINDS,
    Begun,
    CallRecord,
    ClearRecord,
    FieldsRecord,
    KeysRecord,
    OperationRecord,
    RowsRecord,
    StartRecord,
    UnitsRecord,
    UnsizedRecord,
    VersionsRecord,
    WaitRecord,
)
from flagscale_perf.trace.unended import End, Unended

_BEGUN = {
    Begun.PUT: "a put",
    Begun.GET: "a get",
    Begun.UPDATE: "an update",
    Begun.CALL: "the get",
    Begun.COMPUTE: "the compute",
    Begun.CALL_PUT: "the put",
    Begun.WAIT: "a wait for samples",
}

_Before = RowsRecord | UnitsRecord | VersionsRecord  # come before their operation


@dataclass
class Traces:
    """Everything that was read.

    Attributes:
        title: one line.
        subject: where they are from.
        state: how it ended, of several machines the worst; empty where that is not known.
        begun: when; None where that is not known.
        versions: of the packages it was recorded with.
        sums: of calls and operations.
        transfers: for the lineage; None of text, which has no indexes.
        losses: what is missing.
        events: what the tracer says of itself.
        reading: lines that are no records, and files.
        complete: files that have what Ray left out.
        unended: operations and calls that began and have no end, in words.
        unsized: by field whose bytes are not known, in how many operations.
        unsized_count: operations with such fields.
        again: requests to each storage unit that were made again, as it had not answered.
    """

    title: str
    subject: str
    state: str = ""
    begun: str | None = None
    versions: str = ""
    sums: Sums = field(default_factory=Sums)
    transfers: Transfers | None = None
    losses: Losses = field(default_factory=Losses)
    events: list[str] = field(default_factory=list)
    reading: Reading | None = None
    complete: list[str] = field(default_factory=list)
    unended: list[str] = field(default_factory=list)
    unsized: Counter[str] = field(default_factory=Counter)
    unsized_count: int = 0
    again: Counter[str] = field(default_factory=Counter)

    @property
    def is_text(self) -> bool:
        """Whether the traces are lines of a log."""
        return self.transfers is None


def read_traces(session: Session) -> Traces:
    """Reads a session or logs. Raises PerfError if it cannot be read."""
    return _of_logs(session.logs) if session.logs else _of_session(session)


def _of_session(session: Session) -> Traces:
    header, count = session.header, len(session.files)
    job, machines = str(header.facts.get("job") or ""), f"{count} machines" if count > 1 else ""
    traces = Traces(
        title=f"Queue traces of session {header.session_id}",
        subject=", ".join(filter(None, (job, machines))),
        versions=_versions(header),
        begun=session.begun,
        transfers=Transfers(),
    )
    reader = RunReader(traces, session.course)
    for record in session.chunks(into=[traces, reader]):
        reader.add(record)
    reader.settle()
    if not job:  # the driver is the first that puts
        first = next(iter(session.course.processes.values()), None)
        traces.subject = ", ".join(filter(None, (first.title if first else "", machines)))
    traces.unended = reader.unended()
    traces.state, traces.reading = session.state, session.reading
    return traces


def _versions(header: RunHeader) -> str:
    versions = words_of(header.facts.get("versions"))
    return ", ".join(f"{name} {version}" for name, version in versions.items())


class RunReader:
    """Adds the records of run files to the traces, each once its session's course has it."""

    def __init__(self, traces: Traces, course: Course) -> None:
        self._traces, self._course = traces, course
        self.name, self.label = course.name, course.label
        self._field_sets: dict[tuple[int, int], frozenset[str]] = {}
        self._unended: dict[int, Unended] = {}
        self._newest_ns = 0
        self._before: dict[int, list[_Before]] = {}

    def add(self, record: Any) -> None:
        """Adds the next record."""
        self._follow(record)
        match record:
            case OperationRecord() if record.operation in KINDS:
                self._operation(record)
            case CallRecord() | WaitRecord():
                self._call(record) if isinstance(record, CallRecord) else self._wait(record)
            case RowsRecord() | UnitsRecord() | VersionsRecord():
                self._before.setdefault(record.process, []).append(record)
            case ClearRecord() | KeysRecord() if self._traces.transfers is not None:
                self._of_partition(record, self._traces.transfers)
            case FieldsRecord() | UnsizedRecord():
                self._named(record)

    def settle(self) -> None:
        """Takes what the session's course knows so far of losses and events."""
        course, losses = self._course, self._traces.losses
        losses.dropped = course.dropped + sum(each.dropped for each in course.processes.values())
        losses.lost, losses.uncertain = course.lost, course.uncertain
        self._traces.events = list(course.events)

    def _of_partition(self, record: ClearRecord | KeysRecord, transfers: Transfers) -> None:
        partition = self.name(record.process, record.partition)
        if isinstance(record, ClearRecord):
            transfers.add_clear(record, partition)
        else:
            transfers.add_keys(record, partition)

    def _follow(self, record: Any) -> None:
        if isinstance(record, StartRecord | End):
            self._unended.setdefault(record.process, Unended()).add(record)
            at_ns = record.at_ns if isinstance(record, StartRecord) else record.start_ns + record.total_ns
            self._newest_ns = max(self._newest_ns, at_ns)

    def unended(self) -> list[str]:
        """What began and has not ended, the oldest first, in words."""
        begun = [starts[-1] for process in self._unended.values() for starts in process.begun.values()]
        return [self._words(last) for last in sorted(begun, key=lambda last: last.at_ns)]

    def _words(self, begun: StartRecord) -> str:
        age_s = (self._newest_ns - begun.at_ns) / NS_PER_S
        ended = self._course.processes.get(begun.process)
        who = self.label(begun.process) + (f" ({ended.end})" if ended and ended.end else "")
        function, partition = (self.name(begun.process, name) for name in (begun.function, begun.partition))
        what = _BEGUN[Begun(begun.begun)] + (f" in partition {partition}" if partition else "")
        what += f" of {function}" if function else ""
        return f"{who}: {what}, begun {age_s:.3f} s before the newest record"

    def _named(self, record: FieldsRecord | UnsizedRecord) -> None:
        key = record.process, record.number
        names = {self.name(record.process, number) for number in record.fields}
        if isinstance(record, UnsizedRecord):
            self._traces.unsized.update(names)
            self._traces.unsized_count += 1
        else:
            self._field_sets[key] = self._field_sets.get(key, frozenset()) | names

    def _operation(self, one: OperationRecord) -> None:
        process = self.label(one.process)
        error = self.name(one.process, one.error)
        before = self._before.pop(one.process, [])
        self._before[one.process] = [part for part in before if part.number > one.number]
        own = [part for part in before if part.number == one.number]
        waits = self._waits(one.process, own)
        self._traces.sums.add_operation(
            one, process, self.name(one.process, one.slowest_unit or 0), error, waits
        )
        if self._traces.transfers is not None:
            partition = self.name(one.process, one.partition)
            fields = None if one.field_set is None else self._field_sets.get((one.process, one.field_set))
            self._traces.transfers.add(one, process, What(partition, _ranges(own), fields, _versions_of(own)))

    def _waits(self, process: int, own: Sequence[_Before]) -> dict[str, int]:
        """How long an operation waited for each storage unit, in all requests to it."""
        waits: dict[str, int] = {}
        for part in own:
            for number, wait_ns in pairs_of(part.waits) if isinstance(part, UnitsRecord) else ():
                unit = self.name(process, number)
                self._traces.again[unit] += unit in waits
                waits[unit] = waits.get(unit, 0) + wait_ns
        return waits

    def _wait(self, wait: WaitRecord) -> None:
        process, partition = self.label(wait.process), self.name(wait.process, wait.partition)
        self._traces.sums.add_wait(wait, process, self.name(wait.process, wait.task) or process, partition)
        if self._traces.transfers is not None:
            self._traces.transfers.add_wait(wait, process)

    def _call(self, call: CallRecord) -> None:
        process, function = self.label(call.process), self.name(call.process, call.function) or "(no name)"
        self._traces.sums.add_call(call, process, function, self.name(call.process, call.error))
        if self._traces.transfers is not None:
            self._traces.transfers.add_call(call, process, function)


def _ranges(own: Sequence[_Before]) -> Ranges | None:
    """Of what was recorded just before an operation its ranges; None without any, or if some were left
    out.
    """
    rows = [part for part in own if isinstance(part, RowsRecord)]
    if not rows or rows[-1].is_cut:
        return None
    return tuple(pair for part in rows for pair in pairs_of(part.ranges))


def _versions_of(own: Sequence[_Before]) -> tuple[int, int] | None:
    """Likewise which weights made its samples."""
    return next(((part.oldest, part.newest) for part in own if isinstance(part, VersionsRecord)), None)


def _of_logs(paths: Sequence[Path]) -> Traces:
    files = [file for path in paths for file in _chosen(log_files(path))]
    files = list(dict.fromkeys(files))
    named = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    traces = Traces(title=f"Queue traces in {named}", subject=f"{len(files)} logs" if len(files) > 1 else "")
    reader = LogReader(traces.sums, traces.losses)
    _read_into(traces, reader, files, {file for file in files if file not in paths})
    traces.reading = Reading(named, {"lines": reader.lines}, traces.losses.torn, [])
    given = {file.resolve() for file in files}
    parts = [part for file in files for part in older_parts(file) if part.resolve() not in given]
    if parts:
        names = ", ".join(part.name for part in parts[:5])
        traces.events.append(f"rotated parts that are not read: {names}; give them, too, or the directory")
    if traces.losses.repeated:
        traces.complete = _complete(files, traces.losses.lossy)
    return traces


def _read_into(traces: Traces, reader: LogReader, files: Sequence[Path], listed: set[Path]) -> None:
    kept = Kept.of(files, [traces, reader])
    if kept is not None and kept.restore():
        return
    for chunks in held(files, listed):
        reader.read(chunks)
    reader.finish()
    if kept is not None:
        kept.keep()


def _chosen(files: list[Path]) -> list[Path]:
    """The logs of a directory that have every line once: our own of each process, otherwise Ray's of each
    worker, if there are any; the driver's output repeats them.
    """
    if len(files) == 1:
        return files
    own = [file for file in files if file.name.startswith("tq_trace_")]
    workers = [file for file in files if file.name.startswith("worker-")]
    return own or workers or files


def _complete(files: Sequence[Path], pids: set[str]) -> list[str]:
    """Files that contain the lines that Ray left out, if they are in their usual place."""
    found = []
    for directory in dict.fromkeys(file.parent for file in files):
        for below in (directory, directory / "logs" / "trace", directory / "trace"):
            found += sorted(str(path) for path in below.glob("tq_trace_*.log*"))
    own = [name for name in found if any(f"_{pid.partition('@')[0]}." in name for pid in pids)]
    return own or found
