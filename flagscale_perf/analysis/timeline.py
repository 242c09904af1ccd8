"""Items: what any instrument recorded, each with its place and time, on the monotonic clock of its session's
first header. Perfetto's formats and OTLP are written from these alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.records import (
    TYPES,
    ClockRecord,
    EventRecord,
    Record,
    RunEnd,
    RunHeader,
    kind_of,
    place_of,
)

_LAST = 1_000  # rows of record types that their instrument has no row for, and of events
_SPREAD = 0x9E3779B97F4A7C15  # odd, so that all multiples differ; far from small
NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, eq=False)
class Process:
    """A process of the job, the same one whichever instrument recorded something of it, by its `key`.

    Attributes:
        host: name of its machine; None in files of earlier versions.
        pid: None where it is not known.
        session: of the run file, by its id.
        instrument: that recorded it.
        title: what it is, in words.
        rank, stage, replica: of a rank of a training; None where that is not known, or there is one alone.
        apart: tells processes apart of which neither host nor pid does.
    """

    host: str | None
    pid: int | None
    session: str
    instrument: str
    title: str
    rank: int | None = None
    stage: int | None = None
    replica: int | None = None
    apart: int | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """The same for all that is recorded of one process."""
        if self.pid is None:
            own = self.title if self.rank is None else self.rank
            return self.rank is not None, self.instrument * (self.rank is None), own, self.apart
        return self.host, self.pid, self.apart

    @property
    def name(self) -> str:
        """For people: ranks by stage and replica, so that they are sorted by these; others with their pid."""
        title = self.title or f"process {self.apart}"
        if self.rank is None:
            return title if self.pid is None else f"{title} {self.pid}"
        parts = [("stage", self.stage), ("replica", self.replica)]
        where = [f"{what} {number}" for what, number in parts if number is not None]
        own = f"rank {self.rank}" if title == f"rank {self.rank}" else f"rank {self.rank}, {title}"
        return ", ".join([*where, own + (f" on {self.host}" if self.host else "")])


class Track(NamedTuple):
    """A row of a process. Where items overlap, it is drawn as several lanes.

    Attributes:
        order: sorts the rows of a process.
        is_dense: it has so many items that Perfetto's protobuf leaves their facts out.
    """

    process: Process
    name: str
    order: int = 0
    is_dense: bool = False


class Id(NamedTuple):
    """Identity of an item: 128 bits of its trace and 64 of its own, as in OpenTelemetry."""

    trace: int
    span: int


class End(NamedTuple):
    """One end of an arrow, drawn only if its other end is, too.

    Attributes:
        key: the same 64 bits on both ends.
        at_ns: within its item.
        is_source: the arrow begins here.
        name: of the arrow.
    """

    key: int
    at_ns: int
    is_source: bool
    name: str


class Part(NamedTuple):
    """A stage of an item, drawn within it. Its duration is one of the item's facts."""

    name: str
    begin_ns: int
    end_ns: int


class Item(NamedTuple):
    """Something that happened.

    Attributes:
        begin_ns, end_ns: monotonic marks; the same one of what takes no time.
        facts: the other fields of its record.
        id: None of what is drawn and is no span of OTLP.
        parent: of the item it was made in.
        links: the items that it follows from.
        parts: one after another, within it.
        ends: of arrows.
        kind: "producer", "consumer", "client", "server" or "internal", as in OpenTelemetry.
        error: name of the error's type; None where it succeeded.
        step: number of the step that it is, where it is one.
    """

    name: str
    track: Track
    begin_ns: int
    end_ns: int
    facts: Mapping[str, Any] = NOTHING
    id: Id | None = None
    parent: Id | None = None
    links: tuple[Id, ...] = ()
    parts: tuple[Part, ...] = ()
    ends: tuple[End, ...] = ()
    kind: str = "internal"
    error: str | None = None
    step: int | None = None


class Counter(NamedTuple):
    """A value of a process that holds from then on."""

    name: str
    process: Process
    at_ns: int
    value: float


Drawn = Item | Counter


def number_of(text: str, size_bytes: int = 8) -> int:
    """A number of that size from a text, the same each time."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=size_bytes).digest()
    return int.from_bytes(digest, "big") or 1  # 0 is no id


def id_within(whole: Id, place: int) -> Id:
    """The id of the item with that place in another one, in the same trace."""
    return Id(whole.trace, (whole.span + (place + 1) * _SPREAD) % (1 << 64) or 1)


def id_of(trace: str, own: str) -> Id:
    """The id of an item `own` of a trace, the same each time."""
    return Id(number_of(trace, 16), number_of(f"{trace} {own}"))


class Reach(NamedTuple):
    """What an arrow leads from or to: the id of an item, and from when to when that lasts."""

    id: Id
    begin_ns: int
    end_ns: int


def arrow(name: str, source: Reach, target: Reach) -> tuple[End, End]:
    """Both ends of an arrow: from one's end to the other's beginning, or where they overlap, from the
    beginning to the end.
    """
    key = (source.id.span * 31 + target.id.span) % (1 << 64) or 1
    is_after = target.begin_ns >= source.end_ns
    begin_ns = max(source.begin_ns, source.end_ns - 1) if is_after else source.begin_ns
    end_ns = target.begin_ns if is_after else max(target.begin_ns, target.end_ns - 1)
    return End(key, begin_ns, True, name), End(key, end_ns, False, name)


def is_told(session: Session, process: int, source: End, other: int, target: End) -> bool:
    """Whether an arrow between two processes of the session is longer than their clocks may be apart; where
    that is not known, what it connects is still right.
    """
    known_ns = session.uncertainty_ns(process, other, source.at_ns)
    return not known_ns or target.at_ns - source.at_ns > known_ns


def end_to_end(begin_ns: int, end_ns: int, parts: Iterable[tuple[str, int | None]]) -> Iterator[Part]:
    """Parts of which only the nanoseconds are recorded, not when they were, cut off at the end."""
    for name, took_ns in parts:
        until_ns = min(begin_ns + max(0, took_ns or 0), end_ns)
        if until_ns > begin_ns:
            yield Part(name, begin_ns, until_ns)
            begin_ns = until_ns


class Processes:
    """Those of a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._made: dict[int, Process] = {}
        header = session.header
        self.main = process_of(header, header.pid, header.instrument, header)

    def of(self, number: int, **place: int | None) -> Process:
        """The one with this number in the session, as it is known when it is first asked for."""
        if number not in self._made:
            file, _ = self._session.origin(number)
            known = self._session.course.processes.get(number)
            pid, title = (known.pid, known.title) if known else (None, "")
            self._made[number] = process_of(file.header, pid, title, self._session.header, number, **place)
        return self._made[number]


def process_of(
    header: RunHeader,
    pid: int | None,
    title: str,
    first: RunHeader,
    number: int = 0,
    **place: int | None,
) -> Process:
    """Of a run file with that header, in a session whose first one is `first`."""
    apart = number if pid is None else header.pid_namespace
    is_usual = pid is not None and header.pid_namespace == first.pid_namespace
    return Process(
        header.host,
        pid,
        header.session_id,
        header.instrument,
        title,
        **place,
        apart=None if is_usual else apart,
    )


class Timeline:
    """Folds the records of one session; memory does not grow with it.

    A record with a time of its own (`place_of`) is an item in a row of its kind, or a moment if it took no
    time. What an instrument draws in another way it says by `own`.
    """

    def __init__(
        self,
        session: Session,
        own: Mapping[type, Callable[[Any], Iterable[Drawn]]] | None = None,
        rest: Callable[[], Iterable[Drawn]] = tuple,
        main: Process | None = None,
    ) -> None:
        """`own` makes the items of a record type, `rest` those that are left at the end; `main`: the process
        of what has none.
        """
        self._header, self._rest = session.header, rest
        self._main = main or Processes(session).main
        unseen = dict.fromkeys((RunHeader, RunEnd, ClockRecord), nothing)
        self._own = unseen | {EventRecord: self._happening} | dict(own or {})
        self._rows: dict[type, Track] = {}
        self._count = 0

    def items(self, records: Iterable[Record]) -> Iterator[Drawn]:
        """The items of all records, in their order."""
        for record in records:
            own = self._own.get(type(record))
            yield from own(record) if own is not None else self._placed(record)
        yield from self._rest()

    def _placed(self, record: Record) -> Iterator[Item]:
        place = place_of(record, self._header)
        if place is None:
            return
        kind, registered = kind_of(type(record)), TYPES[type(record)]
        values = record._asdict() if hasattr(record, "_asdict") else asdict(record)
        times = (registered.start, registered.duration)
        facts = {name: value for name, value in values.items() if name not in times}
        name = str(facts.pop("name", kind))
        track = self._rows.setdefault(type(record), Track(self._main, kind, _LAST + len(self._rows)))
        self._count += 1
        own = id_of(self._header.session_id, f"{kind} {self._count}") if place.duration_ns else None
        yield Item(name, track, place.start_ns, place.start_ns + place.duration_ns, facts, own)

    def _happening(self, event: EventRecord) -> tuple[Item]:
        track = Track(self._main, "events", _LAST - 1)
        return (Item(event.name, track, event.at_ns, event.at_ns, {"text": event.text}),)


def nothing(record: Record) -> tuple[Drawn, ...]:
    """The items of a record that is not drawn."""
    return ()
