"""1F1B schedules over stages and replicas, made so that what a rank's lateness costs is known."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from flagscale_perf.training.phases import AGREEMENT, NUMBER_OF
from flagscale_perf.training.records import CapturedRecord

SYNC_NS, AGREE_NS, LOADING_NS = 2_000_000, 500_000, 200_000
WORK = {
    "forward": "forward-compute",
    "backward": "backward-compute",
    "optimizer_inner_step": "optimizer-inner-step",
}

Work = tuple[str, int]  # a phase and a micro-batch
Side = tuple[str, str, int, int]  # "send" or "recv", a phase, a micro-batch, the other stage


@dataclass
class Rank:
    """One rank of the schedule: what it does, and its marks on a clock of its own."""

    number: int
    stage: int
    clock_ns: int
    at_ns: int = 0
    marks: list[int] = field(default_factory=list)
    last_ns: int = 0

    def take(self, timer: str, until_ns: int) -> None:
        """Until then, in the phase of that timer; nothing where it is over already."""
        until_ns = max(until_ns, self.at_ns)
        code = 2 * NUMBER_OF[timer]
        self.marks += [code, self.at_ns - self.last_ns, code + 1, until_ns - self.at_ns]
        self.at_ns = self.last_ns = until_ns

    def load(self, timer: str, after_ns: int, until_ns: int) -> None:
        """The same with data loaded in it, for `LOADING_NS`."""
        code, loads = 2 * NUMBER_OF[timer], 2 * NUMBER_OF["batch-generator"]
        rest_ns = until_ns - self.at_ns - after_ns - LOADING_NS
        self.marks += [code, self.at_ns - self.last_ns, loads, after_ns]
        self.marks += [loads + 1, LOADING_NS, code + 1, rest_ns]
        self.at_ns = self.last_ns = until_ns


class Schedule:
    """1F1B over stages and replicas. `times` has the nanoseconds of each piece of work: by rank, phase, step
    and micro-batch. Without `has_room`, who sends waits until it is received. With `is_nested`, data is
    loaded within a forward pass.
    """

    def __init__(
        self,
        stages: int,
        replicas: int,
        batches: int,
        seed: int,
        least_ms: int = 1,
        heavy: int | None = None,
        has_room: bool = True,
        is_nested: bool = False,
        steps: int = 2,
    ) -> None:
        draw = random.Random(seed)
        self.stages, self.replicas, self.batches = stages, replicas, batches
        self.has_room, self.is_nested, self.steps = has_room, is_nested, steps
        self.clock_ns, self.draw, self.jitter_ns = draw.randrange(10**12), draw, 0
        self.message_ns = 0
        self.longer_ns: dict[tuple[int, int], int] = {}  # of a message between these ranks, the lower first
        self.times = {
            (rank, phase, step, batch): draw.randint(least_ms * 10**6, 10**8)
            * (3 if rank // replicas == heavy and phase == "forward" else 1)
            for rank in range(stages * replicas)
            for phase in WORK
            for step in range(steps)
            for batch in range(batches if phase != "optimizer_inner_step" else 1)
        }

    def run(self) -> tuple[list[CapturedRecord], int]:
        """The marks of all steps, the first of which is number 7, and from its end to that of the last."""
        ranks = [
            Rank(number, number // self.replicas, self.clock_ns)
            for number in range(self.stages * self.replicas)
        ]
        captured, ends_ns = [], []
        for step in range(self.steps):
            starts = [rank.at_ns for rank in ranks]
            for rank in ranks:
                rank.marks, rank.last_ns = [], rank.at_ns
            for replica in range(self.replicas):
                self._pipeline([rank for rank in ranks if rank.number % self.replicas == replica], step)
            for stage in range(self.stages):
                of_stage = [rank for rank in ranks if rank.stage == stage]
                end_ns = max(rank.at_ns for rank in of_stage) + SYNC_NS
                for rank in of_stage:
                    rank.take("all-grads-sync", end_ns + self._jitter_ns())
            self._embeddings(ranks)
            agreed_ns = max(rank.at_ns for rank in ranks) + AGREE_NS
            for rank in ranks:
                rank.take(AGREEMENT, agreed_ns + self._jitter_ns())
                self._work(rank, "optimizer_inner_step", step, 0)
            ends_ns.append(max(rank.at_ns for rank in ranks) + AGREE_NS)
            for rank, start_ns in zip(ranks, starts, strict=True):
                rank.marks += [2 * NUMBER_OF[AGREEMENT], 0]  # the step's end ends it
                rank.at_ns = ends_ns[-1] + self._jitter_ns()
                captured.append(
                    CapturedRecord(
                        rank.number, step + 7, rank.clock_ns + start_ns, rank.at_ns - start_ns, rank.marks
                    )
                )
        return captured, ends_ns[-1] - ends_ns[0]

    def _embeddings(self, ranks: list[Rank]) -> None:
        """The first and the last stage of a replica reduce them; the others only start and stop the timer."""
        for replica in range(self.replicas if self.stages > 1 else 0):
            first, *between, last = ranks[replica :: self.replicas]
            end_ns = max(first.at_ns, last.at_ns) + SYNC_NS
            for rank in (first, last):
                rank.take("embedding-grads-all-reduce", end_ns + self._jitter_ns())
            for rank in between:
                rank.take("embedding-grads-all-reduce", rank.at_ns)

    def _jitter_ns(self) -> int:
        """By how much later than the first a rank leaves a collective."""
        return self.draw.randrange(self.jitter_ns) if self.jitter_ns else 0

    def _work(self, rank: Rank, phase: str, step: int, batch: int) -> int:
        until_ns = rank.at_ns + self.times[rank.number, phase, step, batch]
        if phase == "forward" and self.is_nested:
            at_once = (rank.number, step, batch) == (0, 0, 0)  # a piece of work that takes no time
            rank.load(WORK[phase], 0 if at_once else LOADING_NS, until_ns)
        else:
            rank.take(WORK[phase], until_ns)
        return rank.at_ns

    def _pipeline(self, ranks: list[Rank], step: int) -> None:
        """Each stage does its operations in their order. One that exchanges messages lasts until the other
        sides have come to theirs, or what only sends, no time where there is room for what it sends.
        """
        operations = [list(self._operations(stage)) for stage in range(self.stages)]
        at_ns: dict[tuple[str, str, int, int], int] = {}  # of coming to a message
        while any(operations):
            for stage, todo in enumerate(operations):
                if not todo:
                    continue
                rank = ranks[stage]
                if isinstance(todo[0], tuple):
                    self._work(rank, todo[0][0], step, todo[0][1])
                    todo.pop(0)
                    continue
                sides = todo[0]
                for side, phase, batch, _ in sides:
                    at_ns.setdefault((side, phase, stage, batch), rank.at_ns)
                others = [
                    ("send" if side == "recv" else "recv", phase, other, batch)
                    for side, phase, batch, other in sides
                    if side == "recv" or not self.has_room
                ]
                if all(other in at_ns for other in others):
                    timer = "-".join(f"{phase}-{side}" for side, phase, _, _ in sides)
                    came_ns = (at_ns[other] + self._message_ns(rank, other[2]) for other in others)
                    rank.take(timer, max([rank.at_ns, *came_ns]))
                    todo.pop(0)

    def _message_ns(self, rank: Rank, stage: int) -> int:
        other = stage * self.replicas + rank.number % self.replicas
        pair = min(rank.number, other), max(rank.number, other)
        return self.message_ns + self.longer_ns.get(pair, 0)

    def _operations(self, stage: int) -> Iterator[Work | list[Side]]:
        """Work, and what messages are exchanged at once: between passes of one direction a stage first sends
        and then receives, between two directions both together.
        """
        order = list(self._order(stage))
        sends: list[Side] = []
        for number, (phase, batch) in enumerate(order):
            forth = 1 if phase == "forward" else -1
            receives = self._sides("recv", phase, batch, stage - forth)
            is_turn = number > 0 and order[number - 1][0] != phase
            yield from filter(None, [[*sends, *receives]] if is_turn else [sends, receives])
            yield phase, batch
            sends = self._sides("send", phase, batch, stage + forth)
        yield from filter(None, [sends])

    def _sides(self, side: str, phase: str, batch: int, other: int) -> list[Side]:
        return [(side, phase, batch, other)] if 0 <= other < self.stages else []

    def _order(self, stage: int) -> Iterator[tuple[str, int]]:
        ahead = min(self.stages - 1 - stage, self.batches)
        yield from (("forward", batch) for batch in range(ahead))
        for batch in range(self.batches - ahead):
            yield "forward", ahead + batch
            yield "backward", batch
        yield from (("backward", batch) for batch in range(self.batches - ahead, self.batches))
