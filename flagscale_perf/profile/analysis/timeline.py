"""Steps, collectives and runs of operators of all ranks as items, with arrows between matching operations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from flagscale_perf.analysis.clocks import clock_of
from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.timeline import (
    End,
    Id,
    Item,
    Process,
    Processes,
    Reach,
    Timeline,
    Track,
    arrow,
    id_of,
    id_within,
    is_told,
    nothing,
)
from flagscale_perf.profile.analysis.communication import CLOCK, Operation, RankCollectives, operations_of
from flagscale_perf.profile.analysis.source import offset_ns
from flagscale_perf.profile.calls import Calls, read_calls
from flagscale_perf.profile.records import (
    NAMES,
    PARTS,
    BeginRecord,
    CollectiveRecord,
    RankRecord,
    StepRecord,
    WindowRecord,
)
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.units import as_ms

STEPS, WINDOWS, COLLECTIVES, MODULES, OPERATORS, KERNELS = 10, 11, 12, 20, 30, 40  # places of the rows
MOST_MATCHED = 200_000  # collectives of all ranks; later ones have no arrows
_DRAWN = (RankRecord, StepRecord, CollectiveRecord, WindowRecord)
_Side = tuple[int, int, int, int | None]  # of an operation: rank, start, time, whether it sends


def timeline(session: Session) -> Timeline:
    """The timeline of a session."""
    drawn = _Drawn(session)
    own = dict.fromkeys((*NAMES, ProcessRecord, NameRecord, BeginRecord), nothing)
    return Timeline(session, own | dict.fromkeys(_DRAWN, drawn.items))


class _Drawn:
    def __init__(self, session: Session) -> None:
        self._session, self._name_of = session, session.course.name
        self._processes = Processes(session)
        self._ends = arrows_of(session)
        self._ranks: dict[int, RankRecord] = {}
        self._steps: dict[tuple[int, int], Id] = {}

    def items(self, record: Any) -> Iterator[Item]:
        match record:
            case RankRecord():
                self._ranks[record.process] = record
            case StepRecord():
                yield self._step(record)
            case WindowRecord():
                track = Track(self._process(record.process), "windows", WINDOWS)
                facts = {"events": record.events, "dropped": record.dropped_events}
                own = self._id(record, "window")
                yield Item("window", track, record.start_ns, record.start_ns + record.total_ns, facts, own)
                yield from self._runs(record)
            case CollectiveRecord():
                yield self._collective(record)

    def _process(self, number: int) -> Process:
        rank = self._ranks.get(number)
        if rank is None:
            return self._processes.of(number)
        stage = rank.pipeline if (rank.pipeline_size or 1) > 1 else None
        replica = rank.data if (rank.data_size or 1) > 1 else None
        return self._processes.of(number, rank=rank.rank, stage=stage, replica=replica)

    def _id(self, record: Any, what: str) -> Id:
        """Of one of its process's records; what is done in a step has its trace."""
        file, process = self._session.origin(record.process)
        step = record.number if what == "step" else getattr(record, "step", what)
        return id_of(f"{file.header.session_id} {process} {step}", f"{what} {record.number}")

    def _runs(self, window: WindowRecord) -> Iterator[Item]:
        """Runs of operators, modules and kernels, from the file beside the run file."""
        name = self._name_of(window.process, window.calls)
        file, _ = self._session.origin(window.process)
        process = self._process(window.process)
        if not name:
            return
        try:
            calls = read_calls(file.path.parent / name.rpartition("/")[2])
        except PerfError as error:
            track = Track(process, "windows", WINDOWS)
            text = {"text": str(error)}
            yield Item("runs of operators are missing", track, window.start_ns, window.start_ns, text)
        else:
            steps = {step: own for (each, step), own in self._steps.items() if each == window.process}
            more_ns = offset_ns(calls, self._session.clocks.mover(clock_of(file.header)))
            yield from items_of(calls, process, more_ns, steps)

    def _step(self, step: StepRecord) -> Item:
        phase = self._name_of(step.process, step.phase)
        title = f"{phase} {step.iteration or ''}".strip() + ("" if step.is_profiled else ", clean")
        facts: dict[str, Any] = {
            f"{part}_ms": as_ms(getattr(step, f"{part}_ns")) for part in PARTS if step.is_profiled
        }
        rank = self._ranks.get(step.process)
        if rank is not None and (model := self._name_of(step.process, rank.model)):
            facts |= {"model": model}
        own = self._steps[step.process, step.number] = self._id(step, "step")
        track = Track(self._process(step.process), "profiled steps", STEPS)
        end_ns = step.start_ns + step.total_ns
        return Item(title, track, step.start_ns, end_ns, facts, own, step=step.iteration)

    def _collective(self, one: CollectiveRecord) -> Item:
        group, op, module, call = (
            self._name_of(one.process, number) for number in (one.group, one.op, one.module, one.call)
        )
        track = Track(self._process(one.process), group or "collectives", COLLECTIVES)
        facts: Mapping[str, Any] = {
            "module": module,
            "call": call,
            "size_bytes": one.size_bytes,
            "sequence": one.sequence,
            "peer": one.peer,
            "exposed_ms": as_ms(one.exposed_ns),
        }
        end_ns = one.start_ns + one.total_ns
        rank = self._ranks.get(one.process)
        key = (rank.rank if rank else -one.process, one.start_ns, one.total_ns, one.is_send)
        ends = self._ends[key].pop(0) if self._ends.get(key) else ()
        step = self._steps.get((one.process, one.step))
        return Item(
            op, track, one.start_ns, end_ns, facts, self._id(one, "collective"), step, (), (), tuple(ends)
        )


def arrows_of(session: Session) -> dict[_Side, list[list[End]]]:
    """The ends of arrows at each rank's part in an operation: from the last rank to arrive to those that
    waited for it, and from sender to receiver. None if a rank is not in the file, as that one may have
    arrived later still.
    """
    once = session.again()
    places: dict[int, Mapping[str, Any]] = {}
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    kept = 0
    for one in once:
        if isinstance(one, RankRecord):
            places[one.process] = one._asdict()
        elif isinstance(one, CollectiveRecord) and kept < MOST_MATCHED:
            kept += 1
            named = {name: once.course.name(one.process, getattr(one, name)) for name in NAMES[type(one)]}
            found[one.process].append(one._asdict() | named)
    ranks = [
        RankCollectives(
            int(places.get(process, {}).get("rank", -process)),
            clock_of(once.origin(process)[0].header),
            places.get(process, {}),
            collectives,
        )
        for process, collectives in found.items()
    ]
    processes = {each.rank: process for each, process in zip(ranks, found, strict=True)}
    ends: dict[_Side, list[list[End]]] = defaultdict(list)
    for number, operation in enumerate(operations_of(ranks)):
        name, source, targets = _ends(operation) or ("", None, [])
        made: dict[_Side, list[End]] = {
            (side.rank, side.start_ns, side.total_ns, side.is_send): [] for side in operation.sides
        }
        for target in targets:
            if source is not None:
                begin, end = arrow(name, _reach(number, source), _reach(number, target))
                if not is_told(once, processes[source[0]], begin, processes[target[0]], end):
                    continue
                made[source].append(begin)
                made[target].append(end)
        for side, own in made.items():
            ends[side].append(own)
    return ends


def _reach(number: int, side: _Side) -> Reach:
    return Reach(id_of(str(number), str(side)), side[1], side[1] + side[2])


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
    step: int
    part: str
    module: str
    op: str
    ordinal: int
    start_ns: int
    end_ns: int
    self_ns: int


def items_of(calls: Calls, process: Process, more_ns: int, steps: Mapping[int, Id]) -> Iterator[Item]:
    """All runs of one window; `more_ns` is added to their marks; `steps`: ids by the numbers of records."""
    runs = _runs(calls, more_ns)
    track = Track(process, "operators", OPERATORS, is_dense=True)
    for place, run in enumerate(run for run in runs if run.op):
        parent = steps.get(run.step)
        own = None if parent is None else id_within(parent, place)
        facts = {"module": run.module, "part": run.part, "run": run.ordinal, "self_ms": as_ms(run.self_ns)}
        yield Item(run.op, track, run.start_ns, run.end_ns, facts, own, parent)
    for place, part in enumerate(dict.fromkeys(run.part for run in runs)):
        track = Track(process, f"modules, {part}", MODULES + place)
        of_part = [run for run in runs if run.part == part]
        for run in sorted(_modules(of_part), key=lambda run: (run.start_ns, -run.end_ns, len(run.module))):
            parent = steps.get(run.step)
            own = None if parent is None else id_of(str(parent), f"{part} {run.start_ns} {run.module}")
            yield Item(run.module, track, run.start_ns, run.end_ns, {}, own, parent)
    yield from _kernels(calls, process, more_ns)


def _runs(calls: Calls, more_ns: int) -> list[_Run]:
    """The runs in the order of their starts, outer ones first."""
    columns = {name: column.tolist() for name, column in calls.columns.items()}
    texts = ([calls.names[number] for number in columns[name]] for name in ("part", "module", "op"))
    numbers = (columns[name] for name in ("ordinal", "start_ns", "duration_ns", "self_ns"))
    made = [
        _Run(step, part, module, op, ordinal, start + more_ns, start + more_ns + took, self_ns)
        for step, part, module, op, ordinal, start, took, self_ns in zip(
            columns["step"], *texts, *numbers, strict=True
        )
    ]
    return sorted(made, key=lambda run: (run.start_ns, -run.end_ns))


def _modules(runs: Sequence[_Run]) -> Iterator[_Run]:
    """Modules of one part of the step: from the first to the last of consecutive runs in a module. One ends
    where the next begins at the latest, though another thread may still be in it.
    """
    opened: list[list[Any]] = []  # module, the first run in it, end
    for run in runs:
        paths = _paths(run.module)
        same = 0
        for one, path in zip(opened, paths, strict=False):
            if one[0] != path or one[1].step != run.step:
                break
            same += 1
        for module, first, end_ns in opened[same:]:
            yield first._replace(module=module, end_ns=max(first.start_ns, min(end_ns, run.start_ns)))
        del opened[same:]
        for one in opened:
            one[2] = max(one[2], run.end_ns)
        opened += [[path, run, run.end_ns] for path in paths[same:]]
    for module, first, end_ns in opened:
        yield first._replace(module=module, end_ns=end_ns)


@cache
def _paths(module: str) -> list[str]:
    """The module and those around it, the outermost first; lists of modules, which never run, left out."""
    names = module.split(".") if module else []
    return [
        ".".join(names[: n + 1])
        for n in range(len(names))
        if n + 1 == len(names) or not names[n + 1].isdigit()
    ]


def _kernels(calls: Calls, process: Process, more_ns: int) -> Iterator[Item]:
    if not calls.kernels:
        return
    names = ("kernel_name", "kernel_stream", "kernel_start_ns", "kernel_duration_ns")
    columns = (calls.kernels[each].tolist() for each in names)
    for name, stream, start_ns, took_ns in zip(*columns, strict=True):
        track = Track(process, f"kernels, stream {stream}", KERNELS)
        begin_ns = start_ns + more_ns
        yield Item(calls.names[name], track, begin_ns, begin_ns + took_ns)
