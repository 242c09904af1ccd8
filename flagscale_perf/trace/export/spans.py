"""The calls and operations of a job as spans, each with its ids, its parent and its links.

A span's id derives from its session, process and number, so that exporting a run twice gives the same ids.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from flagscale_perf.analysis.session import Course, Session
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.peers.records import ProcessRecord
from flagscale_perf.spine.records import Record
from flagscale_perf.trace.analysis.lineage import join
from flagscale_perf.trace.analysis.source import RunReader, Traces
from flagscale_perf.trace.analysis.transfers import Transfers
from flagscale_perf.trace.records import ONE, CallRecord, Kind, OperationRecord

_HEX = re.compile(r"[0-9a-f]{1,32}", re.IGNORECASE)
_OPERATIONS = {
    Kind.PUT: ("put", "producer"),
    Kind.GET: ("get", "consumer"),
    Kind.UPDATE: ("update", "producer"),
}
# Fields that a span has in another place, or that are numbers of something else.
_ELSEWHERE = {"process", "start_ns", "total_ns", "operation", "error", "trace_id", "weight_milli"}
_NAMES = ("partition", "slowest_unit", "function")

MAX_LINKS = 128  # of one get, the newest: what OpenTelemetry keeps of a span's

Key = tuple[int, int]  # number of the process, and of the operation in it
Value = str | int | float


@dataclass(frozen=True)
class SpanId:
    """Identity of a span: 128 bits of its trace and 64 of its own, as in OpenTelemetry."""

    trace: int
    span: int


@dataclass(frozen=True)
class TraceSpan:
    """A call or an operation.

    Attributes:
        name: the function's, or `put` or `get`.
        kind: "producer" of a put, "consumer" of a get, "internal" of a call.
        id: its own.
        parent: id of the call it was made in; None outside of any.
        links: of a get, the puts that made what it got.
        start_ns: Unix time.
        end_ns: the same.
        session: of the run file.
        host: name of the machine; None in files of earlier versions.
        process: where; None if the file does not say it.
        error: name of the error's type; None where it succeeded.
        values: the other fields of its record that are known, under their names there.
    """

    name: str
    kind: str
    id: SpanId
    parent: SpanId | None
    links: tuple[SpanId, ...]
    start_ns: int
    end_ns: int
    session: str
    host: str | None
    process: ProcessRecord | None
    error: str | None
    values: dict[str, Value] = field(default_factory=dict)

    @property
    def service(self) -> str:
        """The process's name in other systems."""
        return self.process.title if self.process is not None and self.process.title else "transfer_queue"


def spans_of(session: Session) -> Iterator[TraceSpan]:
    """Each call and operation of the job once, in the order of their ends. Reads the files twice; memory
    grows with the number of operations.
    """
    return _Spans(session).all()


class _Spans:
    """First reads which call each was made in, as only the outermost call says whose trace it is, and calls
    come after what was made in them; then makes the spans.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._anchor = Anchor(session.header.start_wall_ns, session.header.start_mono_ns)
        self._noted: dict[Key, tuple[Key, str, int]] = {}  # the call around it, its trace, number of its span
        self._links = links_of(self._note())

    def all(self) -> Iterator[TraceSpan]:
        for record in self._note():  # again, as a live file may have more by now
            if isinstance(record, OperationRecord | CallRecord):
                yield self._span(record)

    def _note(self) -> Iterator[Record]:
        for record in self._session:
            if isinstance(record, OperationRecord | CallRecord):
                outer = record.call if isinstance(record, OperationRecord) else record.parent
                called = self._called(record)
                noted = (record.process, outer), record.trace_id or called, _digest(called, 8)
                self._noted[record.process, record.number] = noted
            yield record

    def _span(self, record: OperationRecord | CallRecord) -> TraceSpan:
        key = (record.process, record.number)
        outer, *_ = self._noted[key]
        name, kind = (
            _OPERATIONS[Kind(record.operation)]
            if isinstance(record, OperationRecord)
            else (self._session.course.name(record.process, record.function) or "?", "internal")
        )
        start_ns, (file, _) = self._anchor.wall_of(record.start_ns), self._session.origin(record.process)
        return TraceSpan(
            name=name,
            kind=kind,
            id=self._id(key),
            parent=self._id(outer) if outer in self._noted else None,  # its record may never have come
            links=tuple(map(self._id, self._links.get(key, ()))),
            start_ns=start_ns,
            end_ns=start_ns + record.total_ns,
            session=file.header.session_id,
            host=file.header.host,
            process=self._session.course.processes.get(record.process),
            error=self._session.course.name(record.process, record.error) or None,
            values=self._values(record),
        )

    def _values(self, record: OperationRecord | CallRecord) -> dict[str, Value]:
        fields = {name: value for name, value in record._asdict().items() if name not in _ELSEWHERE}
        known: dict[str, Value] = {name: value for name, value in fields.items() if value is not None}
        for name in _NAMES:
            if name in known:
                known[name] = self._session.course.name(record.process, int(known[name])) or "?"
        if record.weight_milli != ONE:
            known["weight"] = record.weight_milli / ONE
        if record.trace_id:
            known["trace_id"] = record.trace_id
        return known

    def _id(self, key: Key) -> SpanId:
        root, seen = key, set[Key]()  # calls of a damaged file may be in each other
        while (outer := self._noted[root][0]) in self._noted and outer not in seen:
            seen.add(outer)
            root = outer
        return SpanId(trace_number(self._noted[root][1]), self._noted[key][2])

    def _called(self, record: OperationRecord | CallRecord) -> str:
        """The same whichever files are read together; asked while its file is read."""
        file, process = self._session.origin(record.process)
        return f"{file.header.session_id} {process} {record.number}"


def links_of(records: Iterable[Record]) -> dict[Key, tuple[Key, ...]]:
    """The puts of this run that each get's samples came from, oldest first."""
    transfers, keys, course = Transfers(), list[Key](), Course(has_hosts=True)
    reader = RunReader(Traces("", "", transfers=transfers), course)
    for record in records:
        course.add(record)
        reader.add(record)
        if isinstance(record, OperationRecord) and len(transfers.transfers) > len(keys):
            keys.append((record.process, record.number))
    puts: dict[int, set[int]] = {}
    join(transfers, lambda get, put, _: puts.setdefault(get, set()).add(put))
    found = {}
    for get, made in puts.items():
        ordered = sorted(made, key=lambda place: (transfers.transfers[place].ready_ns, keys[place]))
        found[keys[get]] = tuple(keys[place] for place in ordered[-MAX_LINKS:])
    return found


def trace_number(text: str) -> int:
    """A trace id of 128 bits: the value itself if the text is one in hexadecimal digits, such as a UUID;
    otherwise a digest of it.
    """
    digits = text.replace("-", "")
    number = int(digits, 16) if _HEX.fullmatch(digits) else 0
    return number or _digest(text, 16)


def _digest(text: str, size_bytes: int) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=size_bytes).digest()
    return int.from_bytes(digest, "big") or 1  # 0 is no id
