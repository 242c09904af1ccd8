"""The records of any run on one time axis: spans, counters and moments, on the monotonic clock of its
header.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from flagscale_perf.spine.records import TYPES, EventRecord, Record, RunEnd, RunHeader, kind_of, place_of

_FIRST_OF_KINDS = 100  # threads of record types that their instrument has no track for


class Track(NamedTuple):
    """The place of a span: a row `thread` in the group `process`."""

    process: int
    thread: int


@dataclass(frozen=True)
class Name:
    """The name of a track; with `is_process`, of its whole group."""

    track: Track
    text: str
    is_process: bool = False


@dataclass(frozen=True)
class Span:
    """Something that took a while. Spans of a track lie beside or inside each other, save those with a
    `category`: they may overlap, and `key` distinguishes them.
    """

    track: Track
    name: str
    start_ns: int
    end_ns: int
    args: Mapping[str, Any] = field(default_factory=dict)
    category: str = ""
    key: str = ""


@dataclass(frozen=True)
class Arrow:
    """An arrow from a moment of one span to its effect in another; `key` distinguishes arrows of one name."""

    name: str
    key: str
    source: Track
    source_ns: int
    target: Track
    target_ns: int


@dataclass(frozen=True)
class Counter:
    """A value that holds from then on."""

    name: str
    at_ns: int
    value: float


@dataclass(frozen=True)
class Moment:
    """Something at one instant: a mark on a track."""

    name: str
    at_ns: int
    args: Mapping[str, Any]


Item = Name | Span | Arrow | Counter | Moment


class Timeline:
    """Folds the records of one run; memory does not grow with it.

    A record with a time of its own (`place_of`) is a span on a track of its kind, or a moment if it took no
    time. What an instrument draws in another way it says by `own`.
    """

    def __init__(
        self,
        header: RunHeader,
        own: Mapping[type, Callable[[Any], Iterable[Item]]] | None = None,
        names: Iterable[Name] = (),
        rest: Callable[[], Iterable[Item]] = tuple,
    ) -> None:
        """`own` makes the items of a record type, `rest` those that are left at the end."""
        self._header, self._names, self._rest = header, names, rest
        self._own = {RunHeader: _nothing, RunEnd: _nothing, EventRecord: _happening} | dict(own or {})
        self._tracks: dict[type, Track] = {}

    def items(self, records: Iterable[Record]) -> Iterator[Item]:
        """The items of all records, in their order."""
        yield from self._names
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
        args = {name: value for name, value in values.items() if name not in times}
        name = str(args.pop("name", kind))
        if not place.duration_ns:
            yield Moment(name, place.start_ns, args)
            return
        track = self._tracks.get(type(record))
        if track is None:
            track = self._tracks[type(record)] = Track(1, _FIRST_OF_KINDS + len(self._tracks))
            yield Name(track, kind)
        yield Span(track, name, place.start_ns, place.start_ns + place.duration_ns, args)


def _nothing(record: Record) -> tuple[Item, ...]:
    return ()


def _happening(event: EventRecord) -> list[Item]:
    return [Moment(event.name, event.at_ns, {"text": event.text})]
