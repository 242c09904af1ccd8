"""Steps and collectives of all ranks on a timeline, with arrows between matching operations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from flagscale_perf.analysis.job import clock_of
from flagscale_perf.analysis.timeline import Arrow, Item, Name, Span, Timeline, Track
from flagscale_perf.profile.analysis.communication import CLOCK, Operation, RankCollectives, operations_of
from flagscale_perf.profile.records import (
    CollectiveRecord,
    MemoryRecord,
    RankRecord,
    RoofRecord,
    RowRecord,
    StepRecord,
    WindowRecord,
)
from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.records import RunHeader

_FIRST = 100  # process of the trace of the first rank
_WINDOWS, _STEPS, _COLLECTIVES = 1, 2, 10
MOST_LANES = 16  # of collectives of one rank at the same time
MOST_MATCHED = 200_000  # collectives of all ranks; later ones have no arrows
_TEXTS = ("phase", "module", "op", "call", "group")
_Side = tuple[int, int, int, int | None]  # of an operation: rank, start, time, whether it sends
PARTS = ("operators", "outside", "communication", "host", "engine", "residual")


def timeline(header: RunHeader) -> Timeline:
    """The timeline of the session with this header."""
    drawn = _Drawn()
    own = {
        each: drawn.items
        for each in (
            *(RunHeader, ProcessRecord, NameRecord),
            *(RankRecord, StepRecord, CollectiveRecord, WindowRecord),
        )
    } | dict.fromkeys((RowRecord, MemoryRecord, RoofRecord), _nothing)
    return Timeline(header, own, rest=drawn.arrows)


def _nothing(record: Any) -> tuple[Item, ...]:
    return ()


class _Drawn:
    """Makes spans as records come, and the arrows at the end."""

    def __init__(self) -> None:
        self._names: dict[int, dict[int, str]] = defaultdict(lambda: {0: ""})
        self._ends: dict[tuple[int, str], list[int]] = {}
        self._named: set[Track] = set()
        self._places: dict[int, Mapping[str, Any]] = {}
        self._collectives: dict[int, list[dict[str, Any]]] = defaultdict(list)
        self._tracks: dict[_Side, list[Track]] = defaultdict(list)
        self._kept = 0
        self._clock = ""  # of the file that is being read
        self._clocks: dict[int, str] = {}  # by process

    def items(self, record: Any) -> Iterator[Item]:
        """The spans of one record."""
        match record:
            case RunHeader():
                self._clock = clock_of(record)
            case NameRecord():
                self._names[record.process][record.number] = record.text
            case ProcessRecord() if record.end is None:
                yield Name(Track(_FIRST + record.number, 0), record.title, is_process=True)
            case RankRecord():
                name = self._names[record.process].get(record.model, "")
                self._places[record.process] = record._asdict()
                yield Name(Track(_FIRST + record.process, 0), f"rank {record.rank} {name}".strip(), True)
            case StepRecord():
                yield from self._step(record)
            case WindowRecord():
                track = Track(_FIRST + record.process, _WINDOWS)
                yield from self._name(track, "windows")
                yield Span(track, "window", record.start_ns, record.start_ns + record.total_ns,
                           {"events": record.events, "dropped": record.dropped_events})  # fmt: skip
            case CollectiveRecord():
                yield from self._collective(record)

    def _name(self, track: Track, text: str) -> Iterator[Item]:
        if track not in self._named:
            self._named.add(track)
            yield Name(track, text)

    def _step(self, step: StepRecord) -> Iterator[Item]:
        track = Track(_FIRST + step.process, _STEPS)
        yield from self._name(track, "steps")
        phase = self._names[step.process].get(step.phase, "")
        title = f"{phase} {step.iteration or ''}".strip() + ("" if step.is_profiled else ", clean")
        args = {f"{part}_ms": _ms(getattr(step, f"{part}_ns")) for part in PARTS if step.is_profiled}
        yield Span(track, title, step.start_ns, step.start_ns + step.total_ns, args)

    def _collective(self, one: CollectiveRecord) -> Iterator[Item]:
        names = self._names[one.process]
        group, op = names.get(one.group, ""), names.get(one.op, "")
        lanes = self._ends.setdefault((one.process, group), [])
        lane = next((place for place, end in enumerate(lanes) if end <= one.start_ns), len(lanes))
        end_ns = one.start_ns + one.total_ns
        if lane == len(lanes) < MOST_LANES:
            lanes.append(0)
        lane = min(lane, MOST_LANES - 1)
        groups = [key for process, key in self._ends if process == one.process]
        track = Track(_FIRST + one.process, _COLLECTIVES + MOST_LANES * groups.index(group) + lane)
        lanes[lane] = end_ns
        yield from self._name(track, group or "collectives")
        args: Mapping[str, Any] = {
            "module": names.get(one.module), "call": names.get(one.call), "size_bytes": one.size_bytes,
            "sequence": one.sequence, "peer": one.peer, "exposed_ms": _ms(one.exposed_ns),
        }  # fmt: skip
        yield Span(track, op, one.start_ns, end_ns, args)
        self._keep(one, track)

    def _keep(self, one: CollectiveRecord, track: Track) -> None:
        """Keeps an operation for the arrows."""
        if self._kept < MOST_MATCHED:
            self._kept += 1
            names = self._names[one.process]
            texts = {field: names.get(getattr(one, field), "") for field in _TEXTS}
            self._collectives[one.process].append(one._asdict() | texts)
            self._clocks[one.process] = self._clock
            side = (self._rank(one.process), one.start_ns, one.total_ns, one.is_send)
            self._tracks[side].append(track)

    def _rank(self, process: int) -> int:
        return int(self._places.get(process, {}).get("rank", -process))

    def arrows(self) -> Iterator[Item]:
        """From the last rank to arrive to those that waited for it, and from sender to receiver. There is
        none if a rank is not in the file, as that one may have arrived later still.
        """
        operations = operations_of([
            RankCollectives(self._rank(each), self._clocks[each], self._places.get(each, {}), collectives)
            for each, collectives in self._collectives.items()
        ])  # fmt: skip
        for number, operation in enumerate(operations):
            found = _ends(operation)
            if found is None:
                continue
            name, source, targets = found
            begin = self._tracks[source].pop(0)
            for place, target in enumerate(targets):
                end_ns = target[1] + target[2]
                track = self._tracks[target].pop(0)
                yield Arrow(name, f"{number}/{place}", begin, source[1] + 1, track, end_ns - 1)


def _ends(operation: Operation) -> tuple[str, _Side, list[_Side]] | None:
    """Name, start and end point of an operation's arrows; None if it has none."""
    sides = {(each.rank, each.start_ns, each.total_ns, each.is_send): each for each in operation.sides}
    is_message = sorted(str(each.is_send) for each in operation.sides) == ["0", "1"]
    if not is_message and operation.split_by != CLOCK:
        return None
    begins = [key for key, each in sides.items() if (each.is_send if is_message else each.is_last)]
    ends = [key for key in sides if key not in begins]
    return "message" if is_message else "last to come", begins[0], ends


def _ms(value: int | None) -> float | None:
    return None if value is None else value / 1e6
