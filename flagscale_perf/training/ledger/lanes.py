"""Two captured steps of all ranks of a pipeline, span by span, and which rank a wait is for."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from flagscale_perf.training.capture import unpacked
from flagscale_perf.training.ledger.book import SAME_MOMENT_NS, SAME_MOMENT_OF_WAIT, SAME_MOMENT_SHARE
from flagscale_perf.training.ledger.cuts import BETWEEN, CUTS, WAITING
from flagscale_perf.training.marks import ended_spans
from flagscale_perf.training.phases import AGREEMENT, GROUPS, NUMBER_OF, PHASES
from flagscale_perf.training.records import CapturedRecord

PIPE = frozenset(map(PHASES.index, GROUPS["Pipe"]))
# Timers of messages from or to the stage before, and from or to the one behind.
_BEFORE = {NUMBER_OF[name] for name in NUMBER_OF if name.endswith("forward-recv") or name == "backward-send"}
_BEHIND = {NUMBER_OF[name] for name in NUMBER_OF if name.endswith("backward-recv") or name == "forward-send"}
_BOTH = NUMBER_OF["forward-backward-send-forward-backward-recv"]
_AGREEMENT, _EMBEDDINGS = NUMBER_OF[AGREEMENT], NUMBER_OF["embedding-grads-all-reduce"]
_AGREEING = PHASES.index("exposed_stat_comm")


class Span(NamedTuple):
    """Part of a rank's step that belongs to one phase.

    Attributes:
        phase: a place in `PHASES`.
        timer: the number of the one whose mark ends it.
        start_ns, end_ns: from when to when.
    """

    phase: int
    timer: int
    start_ns: int
    end_ns: int

    @property
    def dur_ns(self) -> int:
        """How long it lasts."""
        return self.end_ns - self.start_ns


class Lane:
    """One rank over two steps in a row.

    Attributes:
        every: its spans one after the other, without a gap; `spans`: those of them that take time.
        of_phase: the latter by their phases.
        of_collective: its waits for others, by the timer.
        begin_ns, end_ns: of the second step, its time since the first one included.
    """

    def __init__(self, before: CapturedRecord, this: CapturedRecord) -> None:
        """Two steps of one rank, the second behind the first."""
        self.begin_ns = before.start_ns + before.train_step_ns
        self.end_ns = this.start_ns + this.train_step_ns
        between = Span(BETWEEN, -1, self.begin_ns, this.start_ns)
        self.every = [*_spans(before), between, *_spans(this)]
        self.spans = [span for span in self.every if span.dur_ns > 0]
        self.of_phase: dict[int, list[Span]] = defaultdict(list)
        self.of_collective: dict[int, list[Span]] = defaultdict(list)
        for span in self.spans:
            self.of_phase[span.phase].append(span)
        for span in self.every:
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

    def at(self, time_ns: int) -> Span:
        """The span that ends then or lasts."""
        return self.spans[max(0, bisect_left(self._starts_ns, time_ns) - 1)]

    def worked_until(self, time_ns: int) -> int | None:
        """The end of the last span of work that had ended by then."""
        for place in range(bisect_left(self._starts_ns, time_ns) - 1, -1, -1):
            span = self.spans[place]
            if span.phase not in WAITING and span.end_ns <= time_ns + SAME_MOMENT_NS:
                return min(span.end_ns, time_ns)
        return None


def _spans(step: CapturedRecord) -> Iterator[Span]:
    """The agreement that ends a step is ended by no timer of its own."""
    at_ns, end_ns = step.start_ns, step.start_ns + step.train_step_ns
    for phase, timer, dur_ns in ended_spans(unpacked(step), at_ns, end_ns):
        yield Span(phase, _AGREEMENT if phase == _AGREEING else timer, at_ns, at_ns + dur_ns)
        at_ns += dur_ns


class Lanes:
    """Of all ranks.

    Attributes:
        of: each rank's lane.
        stages: each rank's place in the pipeline.
    """

    def __init__(self, of: Mapping[int, Lane], stages: Mapping[int, int]) -> None:
        """All ranks' times are of one clock; every stage has as many ranks."""
        self.of, self.stages = of, stages
        self._ranks: dict[int, list[int]] = defaultdict(list)  # of each stage
        for rank in sorted(stages):
            self._ranks[stages[rank]].append(rank)

    def usual_ns(self, rank: int, span: Span) -> int:
        """What the same piece of work takes the stage's others; its own time where there are none."""
        place = self.of[rank].of_phase[span.phase].index(span)
        of_stage = self._ranks[self.stages[rank]]
        alike = [self.of[other].of_phase[span.phase] for other in of_stage if other != rank]
        others = [each[place].dur_ns for each in alike if place < len(each)]
        return int(median(others)) if others else span.dur_ns

    def members(self, rank: int, span: Span) -> list[tuple[int, Span]]:
        """Who waits in the same collective, as often in these steps as this rank; itself alone where they
        have not left it at one moment. All ranks agree, or those of one replica; its first and its last stage
        share embeddings.
        """
        place = self.of[rank].of_collective[span.timer].index(span)
        own = self._ranks[self.stages[rank]]
        replica = [ranks[own.index(rank)] for _, ranks in sorted(self._ranks.items())]
        groups = {
            _AGREEMENT: [list(self.of), replica],
            _EMBEDDINGS: [[replica[0], replica[-1]]],
        }.get(span.timer, [own])
        for group in groups:
            if rank not in group:
                continue
            waits = [self.of[member].of_collective[span.timer] for member in group]
            if all(place < len(each) for each in waits):
                found = [each[place] for each in waits]
                if _is_one_moment(found):
                    return list(zip(group, found, strict=True))
        return [(rank, span)]

    def neighbours(self, rank: int, timer: int) -> list[int]:
        """The other ends of the messages of that timer: in the stage before, behind, or in both."""
        stage = self.stages[rank]
        place = self._ranks[stage].index(rank)
        steps = [-1, 1] if timer == _BOTH else [-1] * (timer in _BEFORE) + [1] * (timer in _BEHIND)
        return [self._ranks[(stage + step) % len(self._ranks)][place] for step in steps]


def _is_one_moment(waits: Sequence[Span]) -> bool:
    """Whether these waits end together, and none of them before the last has begun."""
    starts, ends = [wait.start_ns for wait in waits], [wait.end_ns for wait in waits]
    limit_ns = max(
        SAME_MOMENT_SHARE * (max(starts) - min(starts)),
        SAME_MOMENT_OF_WAIT * min(wait.dur_ns for wait in waits),
        SAME_MOMENT_NS,
    )
    return max(ends) - min(ends) <= limit_ns and min(ends) >= max(starts) - SAME_MOMENT_NS
