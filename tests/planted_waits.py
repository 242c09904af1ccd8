"""What is measured of waiting that was planted on real ranks, beside what the ranks say of it themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from flagscale_perf.profile.analysis.communication import Operation, RankCollectives, operations_of
from flagscale_perf.profile.analysis.waits import Bubble, bubbles_of
from flagscale_perf.profile.operations import bus_factor
from tests.gloo_ranks import some_ranks
from tests.gloo_waits import FORWARD, PLANTED_MS, schedule

MS = 1_000_000


def measured(directory: Path, count: int, what: str, *more: str) -> tuple[list[RankCollectives], list[Any]]:
    """Collectives of each rank of `tests.gloo_waits`, and what it said."""
    directory.mkdir()
    told = some_ranks(count, "tests.gloo_waits", directory, what, str(count), *more)
    places = [{"world_size": count, "pipeline": rank, "pipeline_size": count} for rank in range(count)]
    ranks = [
        RankCollectives(rank, "one", places[rank], each["collectives"]) for rank, each in enumerate(told)
    ]
    return ranks, [each["said"] for each in told]


@dataclass(frozen=True)
class Straggler:
    """All-reduces before which rank 1 was late by so much; values by all-reduce.

    Attributes:
        planted_ms: on purpose.
        truth_ns: by how much later it came than rank 0, as both say; wait_ns: what was measured of it.
        last_ns: measured waiting of rank 1, which came last.
        took_ns: from when both had come to when the first had the result, as both say.
        transfer_ns: what was measured of it.
        busbw, naive: GB/s, measured, and as rank 0 alone would see it, its waiting included.
    """

    planted_ms: int
    truth_ns: Sequence[int]
    wait_ns: Sequence[int]
    last_ns: Sequence[int]
    took_ns: Sequence[int]
    transfer_ns: Sequence[int]
    busbw: Sequence[float]
    naive: Sequence[float]

    @property
    def error(self) -> float:
        """Of the waiting, a share of what was planted, in the middle."""
        apart = [wait - truth for wait, truth in zip(self.wait_ns, self.truth_ns, strict=True)]
        return abs(median(apart)) / (self.planted_ms * MS)

    @property
    def transfer_error(self) -> float:
        """Of the time of the transfer, and so of the links' speed, in the middle."""
        return median(_off(*pair) for pair in zip(self.transfer_ns, self.took_ns, strict=True))


def stragglers(directory: Path) -> list[Straggler]:
    """By what was planted; the first one is nothing."""
    ranks, said = measured(directory, 2, "stragglers")
    reduced = [each for each in operations_of(ranks) if each.operation == "all_reduce"]
    return [_straggler(planted, reduced, said) for planted in PLANTED_MS]


def _straggler(planted: int, operations: Sequence[Operation], said: Sequence[Any]) -> Straggler:
    chosen = [
        (each, early, late)
        for each, (was, *early), (_, *late) in zip(operations, *said, strict=True)
        if was == planted
    ]
    return Straggler(
        planted,
        [late[0] - early[0] for _, early, late in chosen],
        [each.sides[0].wait_ns or 0 for each, _, _ in chosen],
        [each.sides[1].wait_ns or 0 for each, _, _ in chosen],
        [min(early[1], late[1]) - max(early[0], late[0]) for _, early, late in chosen],
        [each.transfer_ns or 0 for each, _, _ in chosen],
        [
            (bus_factor(each.operation, each.size) or 0.0) * (each.size_bytes or 0) / (each.transfer_ns or 1)
            for each, _, _ in chosen
        ],
        [(each.size_bytes or 0) / each.sides[0].total_ns for each, _, _ in chosen],
    )


@dataclass(frozen=True)
class Pipeline:
    """Steps of one number of microbatches, on one stage; values by step.

    Attributes:
        bubble_ns: measured.
        came_ns: by when the ranks say that they began to receive, and sent.
        planted_ns: what the stages' passes make it, if nothing else took time.
        steps_ns: time of the step.
        ideal: (p - 1) / (m + p - 1), as the report says it.
    """

    stage: int
    stages: int
    microbatches: int
    bubble_ns: Sequence[int]
    came_ns: Sequence[int]
    planted_ns: Sequence[int]
    steps_ns: Sequence[int]
    ideal: float | None

    @property
    def error(self) -> float:
        """By what the ranks say, in the middle of the steps."""
        return median(_off(*pair) for pair in zip(self.bubble_ns, self.came_ns, strict=True))

    @property
    def planted_error(self) -> float:
        """By what was planted, in the step that was disturbed least."""
        return _off(self.bubble_ns[self._least], self.planted_ns[self._least])

    @property
    def share(self) -> float:
        """Of the step that was disturbed least: the shortest one."""
        return self.bubble_ns[self._least] / self.steps_ns[self._least]

    @property
    def _least(self) -> int:
        return min(range(len(self.steps_ns)), key=lambda step: self.steps_ns[step])


def _off(measured: int, truth: int) -> float:
    return abs(measured - truth) / truth if truth else float(measured > 0)


def pipelines(
    directory: Path, times_ms: Sequence[tuple[float, float]], microbatches: Sequence[int], steps: int = 5
) -> list[Pipeline]:
    """For each number of microbatches and each stage. `times_ms`: of its forward and its backward passes."""
    order = [each for _ in range(steps) for each in microbatches]
    stages = len(times_ms)
    times = [str(stage[which]) for which in (0, 1) for stage in times_ms]
    ranks, said = measured(directory, stages, "pipeline", ",".join(map(str, order)), *times)
    operations = operations_of(ranks)
    made = []
    for count in microbatches:
        chosen = [number for number, each in enumerate(order) if each == count]
        found = [_bubbles(number, operations, ranks, said) for number in chosen]
        came = [said_by([each["came_ns"][number] for each in said]) for number in chosen]
        planted = [truth([each["slept_ns"][number] for each in said], count) for number in chosen]
        for stage in range(stages):
            own = [bubbles[stage] for bubbles in found]
            made.append(
                Pipeline(
                    stage,
                    stages,
                    count,
                    [bubble.bubble_ns for bubble in own],
                    [waits[stage] for waits in came],
                    [waits[stage] for waits in planted],
                    [bubble.step_ns for bubble in own],
                    own[0].ideal_share,
                )
            )
    return made


def said_by(came: Sequence[Sequence[tuple[str, int | None, int | None]]]) -> list[int]:
    """Waiting of each stage for its messages, by when it began to receive them and when they were sent."""
    sent: dict[tuple[int, str], list[int]] = defaultdict(list)
    for stage, passes in enumerate(came):
        for which, _, sent_ns in passes:
            if sent_ns is not None:
                sent[stage + (1 if which == FORWARD else -1), which].append(sent_ns)
    return [
        sum(
            max(0, sent[stage, which].pop(0) - received_ns)
            for which, received_ns, _ in passes
            if received_ns is not None
        )
        for stage, passes in enumerate(came)
    ]


def _bubbles(
    number: int, operations: Sequence[Operation], ranks: Sequence[RankCollectives], said: Sequence[Any]
) -> Sequence[Bubble]:
    """Of all stages in one step."""
    own = [each for each in operations if each.sides[0].step == number]
    return bubbles_of(own, ranks, {rank: [each["steps_ns"][number]] for rank, each in enumerate(said)})


def truth(slept: Sequence[Sequence[int]], microbatches: int) -> list[int]:
    """Waiting of each stage for its messages, if these took no time and all began together: `slept` are the
    stages' passes of a step, in their order.
    """
    stages = len(slept)
    passes = [
        list(zip(schedule(stage, stages, microbatches), own, strict=True)) for stage, own in enumerate(slept)
    ]
    now, waits = [0] * stages, [0] * stages
    sent: dict[tuple[int, str], list[int]] = defaultdict(list)  # to a stage, of either kind
    while any(passes):
        for stage, own in enumerate(passes):
            if not own:
                continue
            which, took = own[0]
            step = 1 if which == FORWARD else -1
            if 0 <= stage - step < stages:
                if not sent[stage, which]:
                    continue
                came = sent[stage, which].pop(0)
                waits[stage] += max(0, came - now[stage])
                now[stage] = max(now[stage], came)
            now[stage] += took
            sent[stage + step, which].append(now[stage])
            own.pop(0)
    return waits
