"""The critical path of a step through the ranks of a pipeline, walked back from its end.

Where the path comes to the end of a wait, it goes on at the rank that was waited for: the last one to come to
a collective, or the neighbour that had worked until then. docs/formulas.md, "The ledger".
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from flagscale_perf.spine.averages import median
from flagscale_perf.spine.chance import SURE_STEPS, median_within
from flagscale_perf.training.capture import is_sound
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.ledger.cuts import CUTS, WAITING
from flagscale_perf.training.ledger.lanes import PIPE, Lane, Lanes
from flagscale_perf.training.ledger.ledger import BY_PATH, MEASURED, OFF_PATH, LateRow, Ledger
from flagscale_perf.training.ledger.replay import ContradictionError, Replay
from flagscale_perf.training.phases import ONE_F_ONE_B, PHASES
from flagscale_perf.training.rank_records import NodeRecord
from flagscale_perf.training.records import CapturedRecord, CaptureRecord

MAX_STEPS, MAX_RANKS = 16, 256  # a window may have more steps, a job more ranks
BESIDE = 0.5  # of what the stage waits: a gain between nothing and less than this is beside the path
MAX_SPANS = 400_000  # to replay: some seconds; of larger jobs fewer steps
JUDGED = ("data_loading", "forward", "backward")  # of other phases the path is not known well enough

Entry = tuple[int | None, int]  # a rank, None for an exchange or a message; and a phase
_Late = tuple[tuple[int, ...], int]  # a unit's ranks and a phase


class PathTimes(NamedTuple):
    """The critical path of one step, or of several together: nanoseconds by rank and phase.

    Attributes:
        steps: how many steps these are.
        stages: each rank's place in the pipeline.
        on_ns: time on the path; adds up to the time from the end of one step to that of the next.
        own_ns: everything that each rank does in these steps except waiting.
    """

    steps: int
    stages: Mapping[int, int]
    on_ns: Counter[Entry]
    own_ns: Counter[Entry]

    @property
    def total_ns(self) -> int:
        """The time from the end of the step before the first to the end of the last."""
        return sum(self.on_ns.values())

    def part(self, rank: int) -> float:
        """The share of this rank's work that is on the path."""
        on_ns, own_ns = (
            sum(ns for (each, _), ns in found.items() if each == rank) for found in (self.on_ns, self.own_ns)
        )
        return on_ns / max(1, own_ns)


def is_judged(row: LateRow) -> bool:
    """Whether captured steps tell what its lateness costs."""
    return row.pattern == "constant" and row.label == MEASURED and row.phase in JUDGED


def priced(row: LateRow, steps: int, gains_ns: Sequence[int]) -> LateRow:
    """The row of a ledger of so many steps, priced by what replayed steps gain without its lateness; as it is
    where these are too few or differ too much to tell.
    """
    within = median_within(gains_ns)
    if within is None:
        return row
    low_ns, high_ns = within
    is_beside = low_ns <= 0 and steps * high_ns < BESIDE * row.cost_ns
    if low_ns <= 0 and not is_beside:
        return row
    return replace(
        row,
        alone_ns=max(0, round(steps * median(gains_ns))),
        least_ns=max(0, round(steps * low_ns)),
        most_ns=max(0, round(steps * high_ns)),
        label=OFF_PATH if is_beside else BY_PATH,
    )


class WalkFold:
    """Keeps the first captured steps of a window; those of the last window of which there is a path count."""

    def __init__(self, facts: RunFacts) -> None:
        """`facts` of the run. Nothing is walked but a 1F1B pipeline of at most `MAX_RANKS` ranks."""
        self._pipeline, self._ranks = range(facts.pipeline_parallel or 1), facts.world_size or 0
        self._is_walked = (
            len(self._pipeline) > 1 and facts.pipeline_schedule == ONE_F_ONE_B and self._ranks <= MAX_RANKS
        )
        self._stages: dict[int, int] = {}
        self._hosts: set[str] = set()
        self._kept: dict[int, dict[int, CapturedRecord]] = {}  # by iteration and rank
        self._path: PathTimes | None = None
        self._walked: list[CapturedRecord] = []
        self._gains_ns: dict[_Late, list[int]] = {}  # of the walked steps

    def node(self, record: NodeRecord) -> None:
        """The stages of more ranks."""
        self._hosts.add(record.hostname)
        if self._is_walked:
            self._stages.update(zip(record.ranks, record.stages, strict=False))

    def window(self, record: CaptureRecord) -> None:
        """The next window of captured steps."""
        self.result()
        last = min(record.iteration, record.first_iteration + MAX_STEPS)
        self._kept = {iteration: {} for iteration in range(record.first_iteration, last + 1)}

    def add(self, record: CapturedRecord) -> None:
        """One step of a rank; one that a damaged file has made impossible counts as missing."""
        if self._is_walked and record.iteration in self._kept and is_sound(record):
            self._kept[record.iteration][record.rank] = record

    def result(self) -> PathTimes | None:
        """The path of all these steps. None unless two steps in a row have the marks of every rank, all ranks
        are on one machine (clocks differ between machines), and all stages have as many ranks.
        """
        widths = Counter(self._stages.values())
        is_whole = len(self._stages) == self._ranks and widths.keys() == set(self._pipeline)
        if is_whole and len(self._hosts) == len(set(widths.values())) == 1:
            steps = [each for kept in self._kept.values() for each in kept.values()]
            if paths := paths_of(steps, self._stages):
                self._path, self._walked, self._gains_ns = _together(paths), steps, {}
        return self._path

    def price(self, ledger: Ledger) -> Ledger:
        """A stage's ledger, each late unit priced by what the whole job gains where captured steps tell."""
        judged = {(row.ranks, PHASES.index(row.phase)) for row in ledger.late if is_judged(row)}
        if self._path is None or not judged:
            return ledger
        if new := judged - self._gains_ns.keys():
            self._gains_ns |= gains_of(self._walked, self._stages, new)
        late = [
            priced(row, ledger.steps, self._gains_ns[row.ranks, PHASES.index(row.phase)])
            if is_judged(row)
            else row
            for row in ledger.late
        ]
        return replace(ledger, late=late)


def _together(paths: Sequence[PathTimes]) -> PathTimes:
    whole = PathTimes(len(paths), paths[0].stages, Counter(), Counter())
    for path in paths:
        whole.on_ns.update(path.on_ns)
        whole.own_ns.update(path.own_ns)
    return whole


def paths_of(steps: Iterable[CapturedRecord], stages: Mapping[int, int]) -> list[PathTimes]:
    """The path of each step that was captured, like the one before it, on all ranks of `stages`."""
    found = [_path(lanes) for lanes in _lanes_of(steps, stages)]
    return [path for path in found if path is not None]


def gains_of(
    steps: Iterable[CapturedRecord], stages: Mapping[int, int], late: Iterable[_Late]
) -> dict[_Late, list[int]]:
    """What each of those steps would gain without a unit's lateness in a phase. Left out are steps whose
    marks contradict one another and, in a large job, those that would take long to replay.
    """
    gains_ns: dict[_Late, list[int]] = {each: [] for each in late}
    spans = replayed = 0
    for lanes in _lanes_of(steps, stages):
        spans += sum(len(lane.spans) for lane in lanes.of.values())
        if replayed >= SURE_STEPS and spans > MAX_SPANS:
            break
        with contextlib.suppress(ContradictionError):
            replay = Replay(lanes)
            replayed += 1
            for (ranks, phase), found in gains_ns.items():
                found.append(replay.gain_ns(ranks, phase))
    return gains_ns


def _lanes_of(steps: Iterable[CapturedRecord], stages: Mapping[int, int]) -> Iterator[Lanes]:
    by_step: dict[int, dict[int, CapturedRecord]] = defaultdict(dict)
    for step in steps:
        by_step[step.iteration][step.rank] = step
    for iteration in sorted(by_step):
        before, these = by_step.get(iteration - 1, {}), by_step[iteration]
        if stages and before.keys() >= stages.keys() <= these.keys():
            lanes = {rank: Lane(before[rank], these[rank]) for rank in stages}
            if all(lane.is_timed for lane in lanes.values()):
                yield Lanes(lanes, stages)


def _path(lanes: Lanes) -> PathTimes | None:
    """Walks back from the last rank's end of the step to the end of the step before. None if marks contradict
    one another, so that the walk does not get there.
    """
    on_ns, own_ns = Counter[Entry](), Counter[Entry]()
    begin_ns = max(lane.begin_ns for lane in lanes.of.values())
    time_ns, rank = max((lane.end_ns, rank) for rank, lane in lanes.of.items())
    for _ in range(2 * sum(len(lane.spans) for lane in lanes.of.values())):
        place = lanes.of[rank].at(time_ns)
        phase = lanes.of[rank].spans[place].phase
        until_ns, to = _before(lanes, rank, place, time_ns)
        who, until_ns = None if phase in WAITING else rank, max(until_ns, begin_ns)
        on_ns[who, phase] += time_ns - until_ns
        rank, time_ns = to, until_ns
        if time_ns <= begin_ns:
            break
    else:
        return None
    for rank, lane in lanes.of.items():
        for span in lane.spans:
            if span.phase not in WAITING:
                own_ns[rank, span.phase] += span.dur_ns
    return PathTimes(1, lanes.stages, on_ns, own_ns)


def _before(lanes: Lanes, rank: int, place: int, time_ns: int) -> tuple[int, int]:
    """The time at which the path enters this span, and the rank that it comes from."""
    span = lanes.of[rank].spans[place]
    if span.phase in CUTS:
        return max((lanes.of[member].spans[at].start_ns, member) for member, at in lanes.members(rank, place))
    if span.phase not in PIPE:
        return span.start_ns, rank
    worked = [(lanes.of[other].worked_until(time_ns), other) for other in lanes.neighbours(rank, span.timer)]
    return max((span.start_ns, rank), *((ns, other) for ns, other in worked if ns is not None))
