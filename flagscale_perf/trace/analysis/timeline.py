"""Calls and operations as items, each with its id, its parent and its links, and with arrows from each put to
the gets of its samples.

An id derives from the session, process and number, so that reading a run twice gives the same ones.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from flagscale_perf.analysis.session import Course, Session
from flagscale_perf.analysis.timeline import (
    Drawn,
    End,
    Id,
    Item,
    Processes,
    Reach,
    Timeline,
    Track,
    arrow,
    end_to_end,
    is_told,
    nothing,
    number_of,
)
from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.records import Record, RunHeader
from flagscale_perf.trace.analysis.lineage import join
from flagscale_perf.trace.analysis.source import RunReader, Traces
from flagscale_perf.trace.analysis.transfers import Transfer, Transfers
from flagscale_perf.trace.figures import stages_ns
from flagscale_perf.trace.records import (
    KINDS,
    ONE,
    CallRecord,
    ClearRecord,
    FieldsRecord,
    KeysRecord,
    Kind,
    OperationRecord,
    RowsRecord,
    WaitRecord,
)

CALLS, OPERATIONS = ("calls", 60), ("operations", 61)
MOST_ARROWS = 200_000
MAX_LINKS = 128  # of one get, the newest: what OpenTelemetry keeps of a span's
_HEX = re.compile(r"[0-9a-f]{1,32}", re.IGNORECASE)
_OPERATIONS = {
    Kind.PUT: ("put", "producer"),
    Kind.GET: ("get", "consumer"),
    Kind.UPDATE: ("update", "producer"),
}
# Fields that an item has in another place, or that are numbers of something else.
_ELSEWHERE = {"process", "start_ns", "total_ns", "operation", "error", "trace_id", "weight_milli"}
_NAMES = ("partition", "slowest_unit", "function")
_NOT_DRAWN = (RunHeader, ProcessRecord, NameRecord, RowsRecord, FieldsRecord, KeysRecord)

Key = tuple[int, int]  # number of the process, and of the operation in it


class Pair(NamedTuple):
    """A put, and a get of so many samples of it."""

    put: Key
    made: Transfer
    get: Key
    taken: Transfer
    samples: int


def timeline(session: Session) -> Timeline:
    """The timeline of a session. Reads it once first; memory grows with the number of operations."""
    drawn = _Drawn(session)
    own: dict[type, Callable[[Any], Iterable[Drawn]]] = {
        CallRecord: drawn.call,
        OperationRecord: drawn.operation,
        ClearRecord: drawn.clear,
        WaitRecord: drawn.wait,
    }
    return Timeline(session, dict.fromkeys(_NOT_DRAWN, nothing) | own)


class _Drawn:
    """First reads which call each was made in, as only the outermost call says whose trace it is, and calls
    come after what was made in them.
    """

    def __init__(self, session: Session) -> None:
        self._course, self._processes = session.course, Processes(session)
        self._once = session.again()
        self._noted: dict[Key, tuple[Key, str, int]] = {}  # the call around it, its trace, number of its item
        self._pairs = pairs_of(self._note())
        self._links = links_of(self._pairs)
        self._ends: dict[Key, list[End]] = defaultdict(list)
        for pair in self._pairs[:MOST_ARROWS]:
            made, taken = (
                Reach(self._id(key), one.start_ns, one.end_ns)
                for key, one in ((pair.put, pair.made), (pair.get, pair.taken))
            )
            begin, end = arrow(f"{pair.samples} samples", made, taken)
            if is_told(self._once, pair.put[0], begin, pair.get[0], end):
                self._ends[pair.put].append(begin)
                self._ends[pair.get].append(end)
        self._cleared: dict[int, int] = {}  # start of each process's last clear

    def _note(self) -> Iterator[Record]:
        for record in self._once:
            if isinstance(record, OperationRecord | CallRecord):
                outer = record.call if isinstance(record, OperationRecord) else record.parent
                file, process = self._once.origin(record.process)
                called = f"{file.header.session_id} {process} {record.number}"  # whatever is read together
                noted = (record.process, outer), record.trace_id or called, number_of(called)
                self._noted[record.process, record.number] = noted
            yield record

    def _id(self, key: Key) -> Id:
        root, seen = key, set[Key]()  # calls of a damaged file may be in each other
        while (outer := self._noted[root][0]) in self._noted and outer not in seen:
            seen.add(outer)
            root = outer
        return Id(trace_number(self._noted[root][1]), self._noted[key][2])

    def _name(self, record: Any, number: int | None) -> str | None:
        return self._course.name(record.process, number or 0) or None

    def call(self, call: CallRecord) -> Iterator[Item]:
        stages = (("get", call.get_ns), ("compute", call.compute_ns), ("put", call.put_ns))
        yield self._made(call, self._name(call, call.function) or "?", CALLS, stages)

    def operation(self, one: OperationRecord) -> Iterator[Item]:
        if one.operation in KINDS:
            name, kind = _OPERATIONS[Kind(one.operation)]
            yield self._made(one, name, OPERATIONS, stages_ns(one).items(), kind)

    def _made(
        self,
        record: CallRecord | OperationRecord,
        name: str,
        row: tuple[str, int],
        stages: Iterable[tuple[str, int | None]],
        kind: str = "internal",
    ) -> Item:
        key = (record.process, record.number)
        end_ns = record.start_ns + record.total_ns
        if key not in self._noted:  # written since the first reading
            self._noted[key] = (key[0], 0), f"{key}", number_of(f"{key}")
        outer, *_ = self._noted[key]
        return Item(
            name,
            Track(self._processes.of(record.process), *row),
            record.start_ns,
            end_ns,
            self._facts(record),
            self._id(key),
            self._id(outer) if outer in self._noted else None,  # its record may never have come
            tuple(map(self._id, self._links.get(key, ()))),
            tuple(end_to_end(record.start_ns, end_ns, stages)),
            tuple(self._ends.get(key, ())),
            kind,
            self._name(record, record.error),
        )

    def _facts(self, record: OperationRecord | CallRecord) -> dict[str, Any]:
        fields = {name: value for name, value in record._asdict().items() if name not in _ELSEWHERE}
        known: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
        for name in _NAMES:
            if name in known:
                known[name] = self._name(record, int(known[name])) or "?"
        if record.weight_milli != ONE:
            known["weight"] = record.weight_milli / ONE
        if record.trace_id:
            known["trace_id"] = record.trace_id
        return known

    def clear(self, one: ClearRecord) -> Iterator[Item]:
        """One item, however many records the clear has."""
        if self._cleared.get(one.process) != one.start_ns:
            self._cleared[one.process] = one.start_ns
            yield self._drawn(one, "clear", {})

    def wait(self, one: WaitRecord) -> Iterator[Drawn]:
        facts = {"task": self._name(one, one.task), "wanted": one.wanted, "rows": one.rows}
        yield self._drawn(one, "samples" if one.rows else "too few samples", facts)

    def _drawn(self, one: ClearRecord | WaitRecord, name: str, facts: dict[str, Any]) -> Item:
        track = Track(self._processes.of(one.process), *OPERATIONS)
        facts = {"partition": self._name(one, one.partition)} | facts
        error = self._name(one, one.error)
        return Item(name, track, one.start_ns, one.start_ns + one.total_ns, facts, error=error)


def pairs_of(records: Iterable[Record]) -> list[Pair]:
    """Each put with each get of its samples."""
    transfers, keys, course = Transfers(), list[Key](), Course(has_hosts=True)
    reader = RunReader(Traces("", "", transfers=transfers), course)
    for record in records:
        course.add(record)
        reader.add(record)
        if isinstance(record, OperationRecord) and len(transfers.transfers) > len(keys):
            keys.append((record.process, record.number))
    found = Counter[tuple[int, int]]()

    def count(get: int, put: int, samples: int) -> None:
        found[put, get] += samples

    join(transfers, count)
    made = transfers.transfers
    return [Pair(keys[put], made[put], keys[get], made[get], n) for (put, get), n in found.items()]


def links_of(pairs: Iterable[Pair]) -> dict[Key, tuple[Key, ...]]:
    """The puts that each get's samples came from, oldest first."""
    puts: dict[Key, list[tuple[int, Key]]] = defaultdict(list)
    for pair in pairs:
        puts[pair.get].append((pair.made.ready_ns, pair.put))
    return {get: tuple(key for _, key in sorted(found)[-MAX_LINKS:]) for get, found in puts.items()}


def trace_number(text: str) -> int:
    """A trace id of 128 bits: the value itself if the text is one in hexadecimal digits, such as a UUID;
    otherwise a digest of it.
    """
    digits = text.replace("-", "")
    number = int(digits, 16) if _HEX.fullmatch(digits) else 0
    return number or number_of(text, 16)
