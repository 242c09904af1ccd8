"""The critical path of a step through the ranks of a pipeline, walked back from its end.

Where the path comes to the end of a wait, it goes on at the rank that was waited for: the last one to come to
a collective, or the neighbour that had worked until then. Extra time beside the path costs nothing, up to
what the path is longer. docs/formulas.md, "The ledger".
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from flagscale_perf.training.capture import is_sound, unpacked
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.ledger.book import SAME_MOMENT_NS, SAME_MOMENT_OF_WAIT, SAME_MOMENT_SHARE
from flagscale_perf.training.ledger.cuts import BETWEEN, CUTS, WAITING
from flagscale_perf.training.ledger.ledger import MEASURED, OFF_PATH, LateRow, Ledger
from flagscale_perf.training.marks import ended_spans
from flagscale_perf.training.phases import AGREEMENT, GROUPS, NUMBER_OF, ONE_F_ONE_B, PHASES
from flagscale_perf.training.rank_records import NodeRecord
from flagscale_perf.training.records import CapturedRecord, CaptureRecord

PIPE = frozenset(map(PHASES.index, GROUPS["Pipe"]))
# Timers of messages from or to the stage before, and from or to the one behind.
_BEFORE = {NUMBER_OF[name] for name in NUMBER_OF if name.endswith("forward-recv") or name == "backward-send"}
_BEHIND = {NUMBER_OF[name] for name in NUMBER_OF if name.endswith("backward-recv") or name == "forward-send"}
_BOTH = NUMBER_OF["forward-backward-send-forward-backward-recv"]
_AGREEMENT, _EMBEDDINGS = NUMBER_OF[AGREEMENT], NUMBER_OF["embedding-grads-all-reduce"]
_AGREEING = PHASES.index("exposed_stat_comm")

MAX_STEPS, MAX_RANKS = 16, 256  # a window may have more steps, a job more ranks
# A unit's lateness is beside the path if less than so much of it is on it; in other phases than these the
# path is not known well enough to say so.
BESIDE = 0.5
JUDGED = ("data_loading", "forward", "backward")

Entry = tuple[int | None, int]  # a rank, None for an exchange or a message; and a phase


class PathTimes(NamedTuple):
    """Of one step, or of several together: nanoseconds by rank and phase.

    Attributes:
        steps: how many steps these are.
        stages: each rank's place in the pipeline.
        on_ns: on the path; adds up to the time from the end of one step to that of the next.
        late_ns: of that, what takes longer than the same piece of work of the stage's other ranks.
        own_ns: all that each rank does in these steps, waits left out.
    """

    steps: int
    stages: Mapping[int, int]
    on_ns: Counter[Entry]
    late_ns: Counter[Entry]
    own_ns: Counter[Entry]

    @property
    def total_ns(self) -> int:
        """From end to end."""
        return sum(self.on_ns.values())

    def part(self, rank: int) -> float:
        """Of what this rank does, how much is on the path."""
        on_ns, own_ns = (
            sum(ns for (each, _), ns in found.items() if each == rank) for found in (self.on_ns, self.own_ns)
        )
        return on_ns / max(1, own_ns)

    def mark(self, ledger: Ledger) -> Ledger:
        """The ledger of a stage, in which those units are labelled whose lateness is beside the path."""
        return replace(ledger, late=[self._marked(row, ledger.steps) for row in ledger.late])

    def _marked(self, row: LateRow, steps: int) -> LateRow:
        late_ns = sum(self.late_ns[rank, PHASES.index(row.phase)] for rank in row.ranks)
        is_beside = late_ns / self.steps < BESIDE * row.cost_ns / steps
        is_judged = row.pattern == "constant" and row.label == MEASURED and row.phase in JUDGED
        return replace(row, label=OFF_PATH) if is_judged and is_beside else row


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
        self._is_due = False  # a live report asks often, and walks only through what is new

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
            self._is_due = True

    def result(self) -> PathTimes | None:
        """Of all these steps. None where no two steps in a row have the marks of every rank, for ranks of
        several machines, whose clocks differ, and where stages have different numbers of ranks.
        """
        widths = Counter(self._stages.values())
        is_whole = len(self._stages) == self._ranks and widths.keys() == set(self._pipeline)
        if self._is_due and is_whole and len(self._hosts) == len(set(widths.values())) == 1:
            self._is_due = False
            paths = paths_of([each for kept in self._kept.values() for each in kept.values()], self._stages)
            self._path = _together(paths) if paths else self._path
        return self._path


def _together(paths: Sequence[PathTimes]) -> PathTimes:
    """All of them added up."""
    whole = PathTimes(len(paths), paths[0].stages, Counter(), Counter(), Counter())
    for path in paths:
        whole.on_ns.update(path.on_ns)
        whole.late_ns.update(path.late_ns)
        whole.own_ns.update(path.own_ns)
    return whole


class _Span(NamedTuple):
    phase: int
    timer: int
    start_ns: int
    end_ns: int


class _Lane:
    """One rank over two steps in a row.

    Attributes:
        spans: one after the other, without a gap.
        of_phase: the same by their phases.
        of_collective: its waits for others, by the timer.
        begin_ns, end_ns: of the second step, its time since the first one included.
    """

    def __init__(self, before: CapturedRecord, this: CapturedRecord) -> None:
        """Two steps of one rank, the second behind the first."""
        self.begin_ns = before.start_ns + before.train_step_ns
        self.end_ns = this.start_ns + this.train_step_ns
        between = _Span(BETWEEN, -1, self.begin_ns, this.start_ns)
        spans = [*_spans(before), between, *_spans(this)]
        self.spans = [span for span in spans if span.end_ns > span.start_ns]
        self.of_phase: dict[int, list[_Span]] = defaultdict(list)
        self.of_collective: dict[int, list[_Span]] = defaultdict(list)
        for span in self.spans:
            self.of_phase[span.phase].append(span)
        for span in spans:
            if span.phase in CUTS:
                self.of_collective[span.timer].append(span)
        self._starts_ns = [span.start_ns for span in self.spans]

    @property
    def is_timed(self) -> bool:
        """Whether the steps follow one another, and the second one's waits for other stages are timed: some
        schedules wait outside of any timer.
        """
        follows = all(before.end_ns <= span.start_ns for before, span in pairwise(self.spans))
        return follows and any(span.phase in PIPE and span.start_ns >= self.begin_ns for span in self.spans)

    def at(self, time_ns: int) -> _Span:
        """The span that ends then or lasts."""
        return self.spans[max(0, bisect_left(self._starts_ns, time_ns) - 1)]

    def worked_until(self, time_ns: int) -> int | None:
        """The end of the last span of work that had ended by then."""
        for place in range(bisect_left(self._starts_ns, time_ns) - 1, -1, -1):
            span = self.spans[place]
            if span.phase not in WAITING and span.end_ns <= time_ns + SAME_MOMENT_NS:
                return min(span.end_ns, time_ns)
        return None


def paths_of(steps: Iterable[CapturedRecord], stages: Mapping[int, int]) -> list[PathTimes]:
    """Of each captured step whose predecessor is captured, too, on every rank of `stages`. All ranks' times
    are of one clock.
    """
    by_step: dict[int, dict[int, CapturedRecord]] = defaultdict(dict)
    for step in steps:
        by_step[step.iteration][step.rank] = step
    found = []
    for iteration in sorted(by_step):
        before, these = by_step.get(iteration - 1, {}), by_step[iteration]
        if stages and before.keys() >= stages.keys() <= these.keys():
            lanes = {rank: _Lane(before[rank], these[rank]) for rank in stages}
            path = _Walk(lanes, stages).path() if all(lane.is_timed for lane in lanes.values()) else None
            found += [] if path is None else [path]
    return found


def _spans(step: CapturedRecord) -> Iterator[_Span]:
    """The agreement that ends a step is ended by no timer of its own."""
    at_ns, end_ns = step.start_ns, step.start_ns + step.train_step_ns
    for phase, timer, dur_ns in ended_spans(unpacked(step), at_ns, end_ns):
        yield _Span(phase, _AGREEMENT if phase == _AGREEING else timer, at_ns, at_ns + dur_ns)
        at_ns += dur_ns


class _Walk:
    """Through the lanes of one step."""

    def __init__(self, lanes: Mapping[int, _Lane], stages: Mapping[int, int]) -> None:
        self._lanes = lanes
        self._stages = stages
        self._ranks: dict[int, list[int]] = defaultdict(list)  # of each stage
        for rank in sorted(stages):
            self._ranks[stages[rank]].append(rank)

    def path(self) -> PathTimes | None:
        """From the last rank's end of the step to that of the step before; None where marks contradict one
        another, so that it does not get there.
        """
        on_ns, late_ns, own_ns = Counter[Entry](), Counter[Entry](), Counter[Entry]()
        begin_ns = max(lane.begin_ns for lane in self._lanes.values())
        time_ns, rank = max((lane.end_ns, rank) for rank, lane in self._lanes.items())
        for _ in range(2 * sum(len(lane.spans) for lane in self._lanes.values())):
            span = self._lanes[rank].at(time_ns)
            if span.phase in CUTS:
                until_ns, to = max((each.start_ns, member) for member, each in self._members(rank, span))
            elif span.phase in PIPE:
                until_ns, to = self._neighbour(rank, span, time_ns)
            else:
                until_ns, to = span.start_ns, rank
                late_ns[rank, span.phase] += max(0, time_ns - until_ns - self._usual_ns(rank, span))
            who, until_ns = None if span.phase in WAITING else rank, max(until_ns, begin_ns)
            on_ns[who, span.phase] += time_ns - until_ns
            rank, time_ns = to, until_ns
            if time_ns <= begin_ns:
                break
        else:
            return None
        for rank, lane in self._lanes.items():
            for span in lane.spans:
                if span.phase not in WAITING and span.start_ns >= lane.begin_ns:
                    own_ns[rank, span.phase] += span.end_ns - span.start_ns
        return PathTimes(1, self._stages, on_ns, late_ns, own_ns)

    def _usual_ns(self, rank: int, span: _Span) -> int:
        """What the same piece of work takes the stage's other ranks; all of it where there are none."""
        place = self._lanes[rank].of_phase[span.phase].index(span)
        of_stage = self._ranks[self._stages[rank]]
        alike = [self._lanes[other].of_phase[span.phase] for other in of_stage if other != rank]
        others = [each[place].end_ns - each[place].start_ns for each in alike if place < len(each)]
        return int(median(others)) if others else span.end_ns - span.start_ns

    def _members(self, rank: int, span: _Span) -> list[tuple[int, _Span]]:
        """Who waits in the same collective, as often in these steps as this rank; itself alone where they
        have not left it at one moment. All ranks agree, or those of one replica; its first and its last stage
        share embeddings.
        """
        place = self._lanes[rank].of_collective[span.timer].index(span)
        own = self._ranks[self._stages[rank]]
        replica = [ranks[own.index(rank)] for _, ranks in sorted(self._ranks.items())]
        groups = {
            _AGREEMENT: [list(self._lanes), replica],
            _EMBEDDINGS: [[replica[0], replica[-1]]],
        }.get(span.timer, [own])
        for group in groups:
            if rank not in group:
                continue
            waits = [self._lanes[member].of_collective[span.timer] for member in group]
            if all(place < len(each) for each in waits):
                found = [each[place] for each in waits]
                if _is_one_moment(found):
                    return list(zip(group, found, strict=True))
        return [(rank, span)]

    def _neighbour(self, rank: int, span: _Span, time_ns: int) -> tuple[int, int]:
        """Until when the rank worked that this wait is for, and which it is; this one where none did."""
        stage = self._stages[rank]
        place = self._ranks[stage].index(rank)
        steps = [-1] * (span.timer in _BEFORE) + [1] * (span.timer in _BEHIND)
        found = [(span.start_ns, rank)]
        for step in [-1, 1] if span.timer == _BOTH else steps:
            other = self._ranks[(stage + step) % len(self._ranks)][place]
            until_ns = self._lanes[other].worked_until(time_ns)
            found += [] if until_ns is None else [(until_ns, other)]
        return max(found)


def _is_one_moment(waits: Sequence[_Span]) -> bool:
    """Whether these waits end together, and none of them before the last has begun."""
    starts, ends = [wait.start_ns for wait in waits], [wait.end_ns for wait in waits]
    limit_ns = max(
        SAME_MOMENT_SHARE * (max(starts) - min(starts)),
        SAME_MOMENT_OF_WAIT * min(wait.end_ns - wait.start_ns for wait in waits),
        SAME_MOMENT_NS,
    )
    return max(ends) - min(ends) <= limit_ns and min(ends) >= max(starts) - SAME_MOMENT_NS
