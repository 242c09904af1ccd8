"""A captured step of all ranks of a pipeline, span by span, and which rank a wait is for."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from flagscale_perf.spine.averages import median
from flagscale_perf.training.capture import unpacked
from flagscale_perf.training.ledger.book import SAME_MOMENT_NS, moment_ns
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
        start_ns, end_ns: from when to when; the same where it takes no time.
    """

    phase: int
    timer: int
    start_ns: int
    end_ns: int

    @property
    def dur_ns(self) -> int:
        """How long it lasts; below 0 where marks contradict one another."""
        return self.end_ns - self.start_ns


class Lane:
    """One step of a rank, with the time since the step before. A span is named by its place in it.

    Attributes:
        spans: one after the other, without a gap.
        of_phase, of_collective: places of the spans of each phase, and of waits for others by the timer.
        turns: of each span, how many of its phase or collective come before it.
        begin_ns, end_ns: from when to when.
    """

    def __init__(self, before: CapturedRecord, this: CapturedRecord) -> None:
        """The step `this`, and the one before it."""
        self.begin_ns = before.start_ns + before.train_step_ns
        self.end_ns = this.start_ns + this.train_step_ns
        self.spans = [Span(BETWEEN, -1, self.begin_ns, this.start_ns), *_spans(this)]
        self.of_phase: dict[int, list[int]] = defaultdict(list)
        self.of_collective: dict[int, list[int]] = defaultdict(list)
        self.turns: list[int] = []
        for place, span in enumerate(self.spans):
            is_collective = span.phase in CUTS
            alike = self.of_collective[span.timer] if is_collective else self.of_phase[span.phase]
            self.turns.append(len(alike))
            alike.append(place)
        self._lasting = [place for place, span in enumerate(self.spans) if span.dur_ns > 0]
        self._starts_ns = [self.spans[place].start_ns for place in self._lasting]

    @property
    def is_timed(self) -> bool:
        """Whether no span ends before it begins, and its waits for other stages are timed: some schedules
        wait outside of any timer.
        """
        is_sound = min(span.dur_ns for span in self.spans) >= 0 < len(self._lasting)
        return is_sound and any(span.phase in PIPE for span in self.spans)

    def at(self, time_ns: int) -> int:
        """The place of the span that ends then or lasts; spans that take no time left out."""
        return self._lasting[max(0, bisect_left(self._starts_ns, time_ns) - 1)]

    def worked_until(self, time_ns: int) -> int | None:
        """The end of the last span of work that had ended by then."""
        for at in range(bisect_left(self._starts_ns, time_ns) - 1, -1, -1):
            span = self.spans[self._lasting[at]]
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
    """The lanes of all ranks.

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

    def usual_ns(self, rank: int, place: int) -> int:
        """Median time of the stage's other ranks for the same piece of work; its own if there are none."""
        lane = self.of[rank]
        phase, turn = lane.spans[place].phase, lane.turns[place]
        others = (self.of[other] for other in self._ranks[self.stages[rank]] if other != rank)
        alike = [
            other.spans[other.of_phase[phase][turn]].dur_ns
            for other in others
            if turn < len(other.of_phase[phase])
        ]
        return int(median(alike)) if alike else lane.spans[place].dur_ns

    def members(self, rank: int, place: int) -> list[tuple[int, int]]:
        """Ranks, and places of their waits in the same collective, matched by their turn in the step; itself
        alone where they have not left it at one moment. All ranks agree, or those of one replica; its first
        and its last stage share embeddings.
        """
        timer, turn = self.of[rank].spans[place].timer, self.of[rank].turns[place]
        own = self._ranks[self.stages[rank]]
        replica = [ranks[own.index(rank)] for _, ranks in sorted(self._ranks.items())]
        groups = {_AGREEMENT: [list(self.of), replica], _EMBEDDINGS: [[replica[0], replica[-1]]]}
        for group in groups.get(timer, [own]):
            waits = [(member, self.of[member].of_collective[timer]) for member in group]
            if rank in group and all(turn < len(places) for _, places in waits):
                found = [(member, places[turn]) for member, places in waits]
                if _is_one_moment([self.of[member].spans[at] for member, at in found]):
                    return found
        return [(rank, place)]

    def neighbours(self, rank: int, timer: int) -> list[int]:
        """The other ends of the messages of that timer: in the stage before, behind, or in both."""
        stage = self.stages[rank]
        place = self._ranks[stage].index(rank)
        steps = [-1, 1] if timer == _BOTH else [-1] * (timer in _BEFORE) + [1] * (timer in _BEHIND)
        return [self._ranks[(stage + step) % len(self._ranks)][place] for step in steps]


def _is_one_moment(waits: Sequence[Span]) -> bool:
    """Whether these waits end together, and none of them before the last has begun."""
    starts, ends = [wait.start_ns for wait in waits], [wait.end_ns for wait in waits]
    limit_ns = moment_ns(max(starts) - min(starts), min(wait.dur_ns for wait in waits))
    return max(ends) - min(ends) <= limit_ns and min(ends) >= max(starts) - SAME_MOMENT_NS
