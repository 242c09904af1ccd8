"""Steps, collectives and runs of operators of all ranks, with arrows between matching operations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flagscale_perf.analysis.clocks import clock_of
from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.timeline import Arrow, Item, Moment, Name, Span, Timeline, Track
from flagscale_perf.profile.analysis.communication import CLOCK, Operation, RankCollectives, operations_of
from flagscale_perf.profile.analysis.source import offset_ns
from flagscale_perf.profile.calls import Calls, read_calls
from flagscale_perf.profile.records import (
    NAMES,
    PARTS,
    CollectiveRecord,
    DelayRecord,
    RankRecord,
    StepRecord,
    WindowRecord,
)
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.units import as_ms

_FIRST = 100  # process of the trace of the first rank
_WINDOWS, _STEPS, _COLLECTIVES = 1, 2, 10
MODULES, OPERATORS, KERNELS = 5000, 6000, 7000  # first threads of a rank's process
MOST_LANES = 16  # of collectives of one rank at the same time
RUN_LANES = 32  # of operators at the same time on several threads; others are drawn apart
MOST_MATCHED = 200_000  # collectives of all ranks; later ones have no arrows
_DRAWN = (ProcessRecord, NameRecord, RankRecord, StepRecord, CollectiveRecord, WindowRecord)
_Side = tuple[int, int, int, int | None]  # of an operation: rank, start, time, whether it sends


def timeline(session: Session) -> Timeline:
    """The timeline of a session."""
    drawn = _Drawn(session)
    own = dict.fromkeys((*NAMES, DelayRecord), _nothing) | dict.fromkeys(_DRAWN, drawn.items)
    return Timeline(session.header, own, rest=drawn.arrows)


def _nothing(record: Any) -> tuple[Item, ...]:
    return ()


class _Drawn:
    def __init__(self, session: Session) -> None:
        self._session, self._name_of = session, session.course.name
        self._ends: dict[tuple[int, str], list[int]] = {}
        self._named: set[Track] = set()
        self._places: dict[int, Mapping[str, Any]] = {}
        self._collectives: dict[int, list[dict[str, Any]]] = defaultdict(list)
        self._tracks: dict[_Side, list[Track]] = defaultdict(list)
        self._kept = 0

    def items(self, record: Any) -> Iterator[Item]:
        match record:
            case ProcessRecord() if record.end is None:
                yield Name(Track(_FIRST + record.number, 0), record.title, is_process=True)
            case RankRecord():
                name = self._name_of(record.process, record.model)
                self._places[record.process] = record._asdict()
                yield Name(Track(_FIRST + record.process, 0), f"rank {record.rank} {name}".strip(), True)
            case StepRecord():
                yield from self._step(record)
            case WindowRecord():
                track = Track(_FIRST + record.process, _WINDOWS)
                yield from self._name(track, "windows")
                yield Span(
                    track,
                    "window",
                    record.start_ns,
                    record.start_ns + record.total_ns,
                    {"events": record.events, "dropped": record.dropped_events},
                )
                yield from self._runs(record)
            case CollectiveRecord():
                yield from self._collective(record)

    def _runs(self, window: WindowRecord) -> Iterator[Item]:
        """Runs of operators, modules and kernels, from the file beside the run file."""
        name = self._name_of(window.process, window.calls)
        file, _ = self._session.origin(window.process)
        if not name:
            return
        try:
            calls = read_calls(file.path.parent / name.rpartition("/")[2])
        except PerfError as error:
            yield Moment("runs of operators are missing", window.start_ns, {"text": str(error)})
        else:
            yield from items_of(
                calls,
                _FIRST + window.process,
                offset_ns(calls, self._session.clocks.mover(clock_of(file.header))),
            )

    def _name(self, track: Track, text: str) -> Iterator[Item]:
        if track not in self._named:
            self._named.add(track)
            yield Name(track, text)

    def _step(self, step: StepRecord) -> Iterator[Item]:
        track = Track(_FIRST + step.process, _STEPS)
        yield from self._name(track, "steps")
        phase = self._name_of(step.process, step.phase)
        title = f"{phase} {step.iteration or ''}".strip() + ("" if step.is_profiled else ", clean")
        args = {f"{part}_ms": as_ms(getattr(step, f"{part}_ns")) for part in PARTS if step.is_profiled}
        yield Span(track, title, step.start_ns, step.start_ns + step.total_ns, args)

    def _collective(self, one: CollectiveRecord) -> Iterator[Item]:
        group, op, module, call = (
            self._name_of(one.process, number) for number in (one.group, one.op, one.module, one.call)
        )
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
            "module": module,
            "call": call,
            "size_bytes": one.size_bytes,
            "sequence": one.sequence,
            "peer": one.peer,
            "exposed_ms": as_ms(one.exposed_ns),
        }
        yield Span(track, op, one.start_ns, end_ns, args)
        self._keep(one, track)

    def _keep(self, one: CollectiveRecord, track: Track) -> None:
        if self._kept < MOST_MATCHED:
            self._kept += 1
            texts = {
                field: self._name_of(one.process, getattr(one, field)) for field in NAMES[CollectiveRecord]
            }
            self._collectives[one.process].append(one._asdict() | texts)
            side = (self._rank(one.process), one.start_ns, one.total_ns, one.is_send)
            self._tracks[side].append(track)

    def _rank(self, process: int) -> int:
        return int(self._places.get(process, {}).get("rank", -process))

    def arrows(self) -> Iterator[Item]:
        """Arrows from the last rank to arrive to those that waited for it, and from sender to receiver. None
        if a rank is not in the file, as that one may have arrived later still.
        """
        operations = operations_of(
            [
                RankCollectives(
                    self._rank(process),
                    clock_of(self._session.origin(process)[0].header),
                    self._places.get(process, {}),
                    collectives,
                )
                for process, collectives in self._collectives.items()
            ]
        )
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


class _Run(NamedTuple):
    part: str
    module: str
    op: str
    ordinal: int
    start_ns: int
    end_ns: int
    self_ns: int


def items_of(calls: Calls, process: int, offset_ns: int) -> Iterator[Item]:
    """All runs of one window; `offset_ns` is added to their marks."""
    runs = _runs(calls, offset_ns)
    yield from _operators(runs, process)
    yield from _modules(runs, process)
    yield from _kernels(calls, process, offset_ns)


def _runs(calls: Calls, offset_ns: int) -> list[_Run]:
    """The runs in the order of their starts, outer ones first."""
    columns = {name: column.tolist() for name, column in calls.columns.items()}
    texts = ([calls.names[number] for number in columns[name]] for name in ("part", "module", "op"))
    numbers = (columns[name] for name in ("ordinal", "start_ns", "duration_ns", "self_ns"))
    made = [
        _Run(part, module, op, ordinal, start + offset_ns, start + offset_ns + took, self_ns)
        for part, module, op, ordinal, start, took, self_ns in zip(*texts, *numbers, strict=True)
    ]
    return sorted(made, key=lambda run: (run.start_ns, -run.end_ns))


def _operators(runs: Sequence[_Run], process: int) -> Iterator[Item]:
    """Each operator's run, in the first lane in which it lies beside or inside of the others."""
    lanes: list[list[int]] = []  # ends of what is open in each
    named: set[Track] = set()
    for run in (run for run in runs if run.op):
        lane = _lane_of(run, lanes)
        track = Track(process, OPERATORS + lane)
        if track not in named:
            named.add(track)
            yield Name(track, "operators")
        facts = {"module": run.module, "part": run.part, "run": run.ordinal, "self_ms": as_ms(run.self_ns)}
        if lane < RUN_LANES:
            yield Span(track, run.op, run.start_ns, run.end_ns, facts)
        else:
            key = f"{run.start_ns}/{run.module}/{run.op}/{run.ordinal}"
            yield Span(track, run.op, run.start_ns, run.end_ns, facts, "in flight", key)


def _lane_of(run: _Run, lanes: list[list[int]]) -> int:
    """The lane that the run is put into; RUN_LANES if it fits into none."""
    for lane in lanes:
        while lane and lane[-1] <= run.start_ns:
            lane.pop()
    place = next((n for n, lane in enumerate(lanes) if not lane or run.end_ns <= lane[-1]), len(lanes))
    if place == RUN_LANES:
        return place
    if place == len(lanes):
        lanes.append([])
    lanes[place].append(run.end_ns)
    return place


def _modules(runs: Sequence[_Run], process: int) -> Iterator[Item]:
    """Spans of modules, by part of the step: from the first to the last of consecutive runs in a module. A
    span ends where the next begins at the latest, though another thread may still be in it.
    """
    tracks: dict[str, Track] = {}
    for part in dict.fromkeys(run.part for run in runs):
        tracks[part] = Track(process, MODULES + len(tracks))
        yield Name(tracks[part], f"modules, {part}")
        opened: list[list[Any]] = []  # name, start, end
        for run in (run for run in runs if run.part == part):
            paths = _paths(run.module)
            same = next(
                (n for n, (one, path) in enumerate(zip(opened, paths, strict=False)) if one[0] != path),
                min(len(opened), len(paths)),
            )
            while len(opened) > same:
                name, start_ns, end_ns = opened.pop()
                yield Span(tracks[part], name, start_ns, min(end_ns, run.start_ns))
            for one in opened:
                one[2] = max(one[2], run.end_ns)
            opened += [[path, run.start_ns, run.end_ns] for path in paths[same:]]
        while opened:
            yield Span(tracks[part], *opened.pop())


def _paths(module: str) -> list[str]:
    """The module and those around it, the outermost first; lists of modules, which never run, left out."""
    names = module.split(".") if module else []
    return [
        ".".join(names[: n + 1])
        for n in range(len(names))
        if n + 1 == len(names) or not names[n + 1].isdigit()
    ]


def _kernels(calls: Calls, process: int, offset_ns: int) -> Iterator[Item]:
    if not calls.kernels:
        return
    names = ("kernel_name", "kernel_stream", "kernel_start_ns", "kernel_duration_ns")
    streams: dict[int, Track] = {}
    for name, stream, start_ns, took_ns in zip(
        *(calls.kernels[each].tolist() for each in names), strict=True
    ):
        if stream not in streams:
            streams[stream] = Track(process, KERNELS + len(streams))
            yield Name(streams[stream], f"kernels, stream {stream}")
        begin_ns = start_ns + offset_ns
        yield Span(streams[stream], calls.names[name], begin_ns, begin_ns + took_ns)
