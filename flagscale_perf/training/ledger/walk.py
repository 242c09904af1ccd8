"""The critical path of a step through the ranks of a pipeline, walked back from its last cut.

What a stage takes longer beside the path costs nothing. Where the path comes to the end of a wait, it goes on
at the rank that was waited for: the last one to come to a collective, or the neighbour that had worked until
then. docs/formulas.md, "The ledger".
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from flagscale_perf.training.capture import is_sound, unpacked
from flagscale_perf.training.ledger.book import SAME_MOMENT_NS
from flagscale_perf.training.ledger.cuts import BETWEEN, CUTS, WAITING
from flagscale_perf.training.ledger.ledger import OFF_PATH, LateRow, Ledger
from flagscale_perf.training.marks import ended_spans
from flagscale_perf.training.phases import AGREEMENT, GROUPS, NUMBER_OF, PHASES
from flagscale_perf.training.rank_records import NodeRecord
from flagscale_perf.training.records import CapturedRecord, CaptureRecord

PIPE = frozenset(map(PHASES.index, GROUPS["Pipe"]))
# Of whom a message comes, or who takes it: the stage before, or the one behind.
_BEFORE = {NUMBER_OF[name] for name in NUMBER_OF if name.endswith("forward-recv") or name == "backward-send"}
_BEHIND = {NUMBER_OF[name] for name in NUMBER_OF if name.endswith("backward-recv") or name == "forward-send"}
_BOTH = NUMBER_OF["forward-backward-send-forward-backward-recv"]
_AGREEMENT = NUMBER_OF[AGREEMENT]
_OF_ALL = {_AGREEMENT, NUMBER_OF["embedding-grads-all-reduce"]}

MAX_STEPS, MAX_RANKS = 8, 256  # that are walked through
BESIDE = 0.5  # of what a unit is late: with less of it on the path, it is beside it

Entry = tuple[int | None, int]  # a rank, None for an exchange or a message; and a phase


class PathTimes(NamedTuple):
    """Of one step, or of several together: nanoseconds by rank and phase.

    Attributes:
        steps: how many.
        stages: of each rank.
        on_ns: on the path; adds up to the time from cut to cut.
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
        """From cut to cut."""
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
        return replace(row, label=OFF_PATH) if row.pattern == "constant" and is_beside else row


class WalkFold:
    """Keeps the first captured steps of the last window."""

    def __init__(self) -> None:
        self._stages: dict[int, int] = {}
        self._kept: dict[int, dict[int, CapturedRecord]] = {}  # by iteration and rank

    def node(self, record: NodeRecord) -> None:
        """The stages of more ranks."""
        self._stages.update(zip(record.ranks, record.stages, strict=False))

    def window(self, record: CaptureRecord) -> None:
        """Another window, which takes the place of the one before."""
        last = min(record.iteration, record.first_iteration + MAX_STEPS)
        self._kept = {iteration: {} for iteration in range(record.first_iteration, last + 1)}

    def add(self, record: CapturedRecord) -> None:
        """One step of a rank; one that a damaged file has made impossible counts as missing."""
        if record.iteration in self._kept and record.rank < MAX_RANKS and is_sound(record):
            self._kept[record.iteration][record.rank] = record

    def result(self) -> PathTimes | None:
        """Of all these steps; None without a pipeline, of more ranks than `MAX_RANKS`, or where no two
        steps in a row have the marks of every rank.
        """
        if len(set(self._stages.values())) < 2 or len(self._stages) > MAX_RANKS:
            return None
        paths = paths_of([each for kept in self._kept.values() for each in kept.values()], self._stages)
        return _together(paths) if paths else None


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
    """One rank from the last cut of a step to that of the next, which is its time 0.

    Attributes:
        spans: one after the other, without a gap.
        of_phase: the same by their phases.
        first_ns: where they begin.
    """

    def __init__(self, spans: list[_Span], first_ns: int) -> None:
        """No spans where the step has not both cuts."""
        self.spans, self.first_ns = spans, first_ns
        self.of_phase: dict[int, list[_Span]] = defaultdict(list)
        for span in spans:
            self.of_phase[span.phase].append(span)
        self._starts_ns = [span.start_ns for span in spans]

    def at(self, time_ns: int) -> _Span:
        """The span that ends then or lasts."""
        return self.spans[max(0, bisect_left(self._starts_ns, time_ns) - 1)]

    def back_from(self, time_ns: int) -> Iterator[_Span]:
        """The spans that begin before it, the last one first."""
        return (self.spans[place] for place in range(bisect_left(self._starts_ns, time_ns) - 1, -1, -1))

    def worked_until(self, time_ns: int) -> int | None:
        """The end of the last span of work that had ended by then."""
        ends_ns = (span.end_ns for span in self.back_from(time_ns) if span.phase not in WAITING)
        return next((min(end_ns, time_ns) for end_ns in ends_ns if end_ns <= time_ns + SAME_MOMENT_NS), None)

    def leaving(self, timer: int, time_ns: int) -> _Span | None:
        """Its wait in the collective of that timer, if that ends at this moment."""
        for span in self.back_from(time_ns):
            if span.timer == timer or span.end_ns < time_ns - SAME_MOMENT_NS:
                is_same = span.timer == timer and abs(span.end_ns - time_ns) <= SAME_MOMENT_NS
                return span if is_same else None
        return None


def paths_of(steps: Sequence[CapturedRecord], stages: Mapping[int, int]) -> list[PathTimes]:
    """Of each captured step whose predecessor is captured, too, on every rank of `stages`."""
    by_step: dict[int, dict[int, CapturedRecord]] = defaultdict(dict)
    for step in steps:
        by_step[step.iteration][step.rank] = step
    found = []
    for iteration in sorted(by_step):
        before, these = by_step.get(iteration - 1, {}), by_step[iteration]
        if stages and before.keys() >= stages.keys() <= these.keys():
            lanes = {rank: _lane(before[rank], these[rank]) for rank in stages}
            if all(lane.spans for lane in lanes.values()):
                found.append(_Walk(lanes, stages).path())
    return found


def _lane(before: CapturedRecord, this: CapturedRecord) -> _Lane:
    own = [*_spans(before), *_spans(this)]
    end_ns = before.start_ns + before.train_step_ns
    cuts_ns = [span.end_ns for span in own if span.timer == _AGREEMENT and span.phase in CUTS]
    earlier = [cut_ns for cut_ns in cuts_ns if cut_ns <= end_ns]
    if not earlier or cuts_ns[-1] <= end_ns or this.start_ns < end_ns:
        return _Lane([], 0)
    own = sorted([*own, _Span(BETWEEN, -1, end_ns, this.start_ns)], key=lambda span: span.start_ns)
    first_ns, zero_ns = earlier[-1], cuts_ns[-1]
    kept = [
        _Span(span.phase, span.timer, span.start_ns - zero_ns, span.end_ns - zero_ns)
        for span in own
        if first_ns <= span.start_ns and span.end_ns <= zero_ns and span.end_ns > span.start_ns
    ]
    return _Lane(kept, first_ns - zero_ns)


def _spans(step: CapturedRecord) -> Iterator[_Span]:
    at_ns, end_ns = step.start_ns, step.start_ns + step.train_step_ns
    for phase, timer, dur_ns in ended_spans(unpacked(step), at_ns, end_ns):
        yield _Span(phase, timer, at_ns, at_ns + dur_ns)
        at_ns += dur_ns


class _Walk:
    """Through the lanes of one step."""

    def __init__(self, lanes: Mapping[int, _Lane], stages: Mapping[int, int]) -> None:
        self._lanes = lanes
        self._stages = stages
        self._ranks: dict[int, list[int]] = defaultdict(list)  # of each stage
        for rank in sorted(stages):
            self._ranks[stages[rank]].append(rank)

    def path(self) -> PathTimes:
        """From the last cut to the one before it."""
        on_ns, late_ns, own_ns = Counter[Entry](), Counter[Entry](), Counter[Entry]()
        rank, time_ns = max((lane.spans[-1].start_ns, rank) for rank, lane in self._lanes.items())[1], 0
        for _ in range(2 * sum(len(lane.spans) for lane in self._lanes.values())):
            if time_ns <= self._lanes[rank].first_ns:
                break
            span = self._lanes[rank].at(time_ns)
            if span.phase in CUTS:
                to, until_ns = max((each.start_ns, other) for other, each in self._beside(rank, span))[::-1]
                who = None
            elif span.phase in PIPE:
                to, until_ns = self._neighbour(rank, span, time_ns)
                who = None
            else:
                to, until_ns, who = rank, span.start_ns, rank
                late_ns[rank, span.phase] += max(0, time_ns - until_ns - self._usual_ns(rank, span))
            on_ns[who, span.phase] += time_ns - until_ns
            rank, time_ns = to, until_ns
        for rank, lane in self._lanes.items():
            for span in lane.spans:
                if span.phase not in WAITING:
                    own_ns[rank, span.phase] += span.end_ns - span.start_ns
        return PathTimes(1, self._stages, on_ns, late_ns, own_ns)

    def _usual_ns(self, rank: int, span: _Span) -> int:
        """What the same piece of work takes the stage's other ranks; all of it where there are none."""
        place = self._lanes[rank].of_phase[span.phase].index(span)
        of_stage = self._ranks[self._stages[rank]]
        alike = [self._lanes[other].of_phase[span.phase] for other in of_stage if other != rank]
        others = [each[place].end_ns - each[place].start_ns for each in alike if place < len(each)]
        return int(median(others)) if others else span.end_ns - span.start_ns

    def _beside(self, rank: int, span: _Span) -> Iterator[tuple[int, _Span]]:
        """Who leaves the same collective at this moment."""
        yield rank, span
        for other in self._lanes if span.timer in _OF_ALL else self._ranks[self._stages[rank]]:
            each = self._lanes[other].leaving(span.timer, span.end_ns)
            if each is not None:
                yield other, each

    def _neighbour(self, rank: int, span: _Span, time_ns: int) -> tuple[int, int]:
        """Who worked until this wait could end, and until when; this rank itself where nobody did."""
        stage = self._stages[rank]
        place = self._ranks[stage].index(rank)
        steps = [-1] * (span.timer in _BEFORE) + [1] * (span.timer in _BEHIND)
        found = [(span.start_ns, rank)]
        for step in [-1, 1] if span.timer == _BOTH else steps:
            beside = self._ranks[(stage + step) % len(self._ranks)]
            if place < len(beside):
                until_ns = self._lanes[beside[place]].worked_until(time_ns)
                found += [] if until_ns is None else [(until_ns, beside[place])]
        until_ns, to = max(found)
        return to, until_ns
