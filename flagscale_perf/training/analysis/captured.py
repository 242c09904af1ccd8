"""Captured steps of every rank side by side: who works longer than its peers, and which link is slow.

Of ranks that share a row the worst is kept, so that one of ten thousand is seen. What a link takes is told
without a common clock: the fastest message there and the fastest one back together, in which clocks cancel.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from flagscale_perf.spine.averages import median
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.training.analysis.tables import CapturedRank, CapturedRanks, SlowLink
from flagscale_perf.training.capture import Messages, coded, is_sound, messages_of
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.marks import spans_of
from flagscale_perf.training.phases import GROUPS, ONE_F_ONE_B, PHASES, Kind, of_kind
from flagscale_perf.training.rank_records import NodeRecord
from flagscale_perf.training.records import CapturedRecord, CaptureRecord

MAX_ROWS, MAX_STEPS, MAX_LISTED = 40, 16, 10
LONGER = 0.01  # of a step, beyond the stage's median
SLOWER = 1.5  # times what other links of its kind take
_KEPT = 64  # ranks of a step
ALL_WORK = "all work"
_WORK = of_kind(Kind.WORK)
_PARTS = {group: [PHASES.index(name) for name in names if name in _WORK] for group, names in GROUPS.items()}
PARTS = (ALL_WORK, *(group for group, phases in _PARTS.items() if phases))

_Work = list[int]  # nanoseconds by `PARTS`


class _Step(NamedTuple):
    """A step of all ranks, reduced.

    Attributes:
        step_ns: the longest of a rank.
        beyond_ns: by part and row, the most by which a rank of the row works longer than its stage's median.
        worst: the ranks that do so most: by how much, the rank, and the place of the part.
    """

    step_ns: int
    beyond_ns: list[list[int | None]]
    worst: list[tuple[int, int, int]]


class CapturedFold:
    """Folds the last window of captured steps of which one is complete; memory grows with the ranks of steps
    that are not.
    """

    def __init__(self, facts: RunFacts) -> None:
        """`facts` of the run."""
        self._ranks, self._has_pipeline = facts.world_size or 0, facts.pipeline_schedule == ONE_F_ONE_B
        self._rows = min(self._ranks, MAX_ROWS)
        self._stages: dict[int, int] = {}
        self._hosts: dict[int, str] = {}
        self._open: dict[int, dict[int, tuple[int, _Work, str]]] = {}  # with messages in short
        self._steps: dict[int, _Step] = {}
        self._links_ns: dict[tuple[int, int], list[int]] = {}
        self._is_next = False  # a window has begun, and what is known is still of the one before

    def node(self, record: NodeRecord) -> None:
        """The places of more ranks."""
        self._stages |= zip(record.ranks, record.stages, strict=False)
        self._hosts |= dict.fromkeys(record.ranks, record.hostname)

    def window(self, record: CaptureRecord) -> None:
        """The next window."""
        last = min(record.iteration, record.first_iteration + MAX_STEPS - 1)
        self._open = {iteration: {} for iteration in range(record.first_iteration, last + 1)}
        self._is_next = True

    def add(self, record: CapturedRecord) -> None:
        """One step of a rank; one that a damaged file has made impossible counts as missing."""
        step = self._open.get(record.iteration)
        if step is None or not 0 <= record.rank < self._ranks or not is_sound(record):
            return
        messages = _short(messages_of(record)) if self._has_pipeline else ""
        step[record.rank] = record.train_step_ns, _work_of(record), messages
        if len(step) == self._ranks and len(self._stages) == self._ranks:
            self._reduce(record.iteration)

    def result(self) -> CapturedRanks | None:
        """What the window shows; None without a step of two ranks."""
        if not (self._is_next and self._steps):
            for iteration in [number for number, step in self._open.items() if len(step) > 1]:
                self._reduce(iteration)
        steps = dict(sorted(self._steps.items()))
        if not steps:
            return None
        step_ns = median([step.step_ns for step in steps.values()])
        return CapturedRanks(
            steps=[*steps],
            step_ms=step_ns / NS_PER_MS,
            rows=[[self._first(row), self._first(row + 1) - 1] for row in range(self._rows)],
            beyond_ms={
                part: [
                    [
                        None if (ns := step.beyond_ns[at][row]) is None else ns / NS_PER_MS
                        for step in steps.values()
                    ]
                    for row in range(self._rows)
                ]
                for at, part in enumerate(PARTS)
            },
            slow=[*self._slow(step_ns)][:MAX_LISTED],
            links=sorted(self._slow_links(), key=lambda link: link.usual_ms - link.round_ms)[:MAX_LISTED],
        )

    def _first(self, row: int) -> int:
        return -(-row * self._ranks // self._rows)

    def _reduce(self, iteration: int) -> None:
        if self._is_next:
            self._is_next, self._steps, self._links_ns = False, {}, {}
        step = self._open.pop(iteration)
        works: dict[int, list[_Work]] = defaultdict(list)
        for rank, (_, work, _) in step.items():
            works[self._stages.get(rank, -1)].append(work)
        usual = {
            stage: [median(column) for column in zip(*of_stage, strict=True)]
            for stage, of_stage in works.items()
            if len(of_stage) > 1
        }
        beyond: list[list[int | None]] = [[None] * self._rows for _ in PARTS]
        worst: list[tuple[int, int, int]] = []
        for rank, (_, work, _) in step.items():
            row = rank * self._rows // self._ranks
            for at, usual_ns in enumerate(usual.get(self._stages.get(rank, -1), ())):
                ns, known = round(work[at] - usual_ns), beyond[at][row]
                beyond[at][row] = max(0, ns, known or 0)
                if ns > 0 and at:
                    worst.append((ns, rank, at))
        self._pair(step)
        longest_ns = max(took_ns for took_ns, _, _ in step.values())
        self._steps[iteration] = _Step(longest_ns, beyond, heapq.nlargest(_KEPT, worst))

    def _slow(self, step_ns: float) -> Iterator[CapturedRank]:
        """Ranks that work longer in most steps, those that do so most first."""
        found: dict[tuple[int, int], list[int]] = defaultdict(list)
        for step in self._steps.values():
            for ns, rank, at in step.worst:
                found[rank, at].append(ns)
        for (rank, at), beyond_ns in sorted(found.items(), key=lambda one: (-median(one[1]), one[0])):
            if 2 * len(beyond_ns) > len(self._steps) and median(beyond_ns) > LONGER * step_ns:
                where = self._hosts.get(rank), self._stages.get(rank)
                yield CapturedRank(rank, *where, PARTS[at], len(beyond_ns), median(beyond_ns) / NS_PER_MS)

    def _pair(self, step: dict[int, tuple[int, _Work, str]]) -> None:
        """The fastest message there and back between neighbours in the pipeline."""
        of_stage: dict[int, list[int]] = defaultdict(list)
        for rank, stage in sorted(self._stages.items()):
            of_stage[stage].append(rank)
        stages = [of_stage[stage] for stage in sorted(of_stage)]
        if not self._has_pipeline or len({*map(len, stages)}) != 1:
            return
        for here, behind in zip(stages, stages[1:], strict=False):
            for one, other in zip(here, behind, strict=True):
                if one in step and other in step:
                    before, after = (_messages_in(step[rank][2]) for rank in (one, other))
                    ways = before.forward(after), after.backward(before)
                    if all(ways):
                        fastest = [min(end - begin for begin, end in way) for way in ways]
                        known = self._links_ns.get((one, other), fastest)
                        self._links_ns[one, other] = [*map(min, fastest, known)]

    def _slow_links(self) -> Iterator[SlowLink]:
        """Those that take longer than others between ranks of one machine, or of two."""
        kinds: dict[bool, list[tuple[int, int]]] = defaultdict(list)
        for one, other in self._links_ns:
            kinds[self._hosts.get(one) == self._hosts.get(other)].append((one, other))
        for pairs in kinds.values():
            rounds_ns = [sum(self._links_ns[pair]) for pair in pairs]
            usual_ns = median(rounds_ns)
            for pair, round_ns in zip(pairs, rounds_ns, strict=True):
                if len(pairs) > 2 and round_ns > SLOWER * usual_ns > 0:
                    hosts = [self._hosts.get(rank) for rank in pair]
                    yield SlowLink([*pair], hosts, round_ns / NS_PER_MS, usual_ns / NS_PER_MS, len(pairs))


def _short(messages: Messages) -> str:
    """A text: what is kept of a fold has so many values at most."""
    return ";".join(" ".join(map(str, times)) for times in messages)


def _messages_in(short: str) -> Messages:
    return Messages(*([*map(int, times.split())] for times in short.split(";")))


def _work_of(record: CapturedRecord) -> _Work:
    by_phase = [0] * len(PHASES)
    for phase, ns in spans_of(coded(record), record.start_ns, record.start_ns + record.train_step_ns):
        by_phase[phase] += ns
    parts = [sum(by_phase[phase] for phase in phases) for phases in _PARTS.values() if phases]
    return [sum(parts), *parts]
