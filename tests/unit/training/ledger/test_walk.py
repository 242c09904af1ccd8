"""The critical path of a pipeline, against what a simulated 1F1B schedule loses to a rank that is late."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from flagscale_perf.training.ledger.ledger import MEASURED, OFF_PATH, ledger_of
from flagscale_perf.training.ledger.walk import PathTimes, WalkFold, paths_of
from flagscale_perf.training.phases import AGREEMENT, NUMBER_OF, ONE_F_ONE_B, PHASES
from flagscale_perf.training.rank_records import NodeRecord
from flagscale_perf.training.records import CapturedRecord, CaptureRecord
from tests.fakes import make_facts
from tests.schedules import BACKWARD, MS, recorded

SYNC_NS, AGREE_NS = 2_000_000, 500_000
WORK = {
    "forward": "forward-compute",
    "backward": "backward-compute",
    "optimizer_inner_step": "optimizer-inner-step",
}


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


class Schedule:
    """1F1B over stages and replicas. `times` has the nanoseconds of each piece of work: by rank, phase, step
    and micro-batch.
    """

    def __init__(
        self, stages: int, replicas: int, batches: int, seed: int, least_ms: int = 1, heavy: int | None = None
    ) -> None:
        draw = random.Random(seed)
        self.stages, self.replicas, self.batches = stages, replicas, batches
        self.clock_ns, self.draw, self.jitter_ns = draw.randrange(10**12), draw, 0
        self.times = {
            (rank, phase, step, batch): draw.randint(least_ms * 10**6, 10**8)
            * (3 if rank // replicas == heavy and phase == "forward" else 1)
            for rank in range(stages * replicas)
            for phase in WORK
            for step in range(2)
            for batch in range(batches if phase != "optimizer_inner_step" else 1)
        }

    def run(self) -> tuple[list[CapturedRecord], int]:
        """The marks of two steps, and from the end of the first to that of the second."""
        ranks = [
            Rank(number, number // self.replicas, self.clock_ns)
            for number in range(self.stages * self.replicas)
        ]
        captured, ends_ns = [], []
        for step in range(2):
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
        return captured, ends_ns[1] - ends_ns[0]

    def _embeddings(self, ranks: list[Rank]) -> None:
        """The first and the last stage of a replica reduce them; the others only start and stop the timer."""
        for replica in range(self.replicas):
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
        rank.take(WORK[phase], rank.at_ns + self.times[rank.number, phase, step, batch])
        return rank.at_ns

    def _pipeline(self, ranks: list[Rank], step: int) -> None:
        orders = [list(self._order(stage)) for stage in range(self.stages)]
        done: dict[tuple[str, int, int], int] = {}
        while any(orders):
            for stage, order in enumerate(orders):
                if not order:
                    continue
                phase, batch = order[0]
                source = stage - 1 if phase == "forward" else stage + 1
                if 0 <= source < self.stages:
                    if (phase, source, batch) not in done:
                        continue
                    ranks[stage].take(f"{phase}-recv", done[phase, source, batch])
                done[phase, stage, batch] = self._work(ranks[stage], phase, step, batch)
                order.pop(0)

    def _order(self, stage: int) -> Iterator[tuple[str, int]]:
        ahead = min(self.stages - 1 - stage, self.batches)
        yield from (("forward", batch) for batch in range(ahead))
        for batch in range(self.batches - ahead):
            yield "forward", ahead + batch
            yield "backward", batch
        yield from (("backward", batch) for batch in range(self.batches - ahead, self.batches))


@pytest.mark.parametrize("seed", range(20))
def test_the_path_has_what_the_step_loses_when_a_rank_works_longer(seed: int) -> None:
    stages, replicas = 2 + seed % 3, 1 + seed % 2
    schedule = Schedule(stages, replicas, batches=3 + seed % 6, seed=seed)
    captured, step_ns = schedule.run()
    (path,) = paths_of(captured, {rank: rank // replicas for rank in range(stages * replicas)})
    assert path.total_ns == step_ns
    lost: Counter[tuple[int | None, int]] = Counter()
    for (rank, phase, step, batch), dur_ns in schedule.times.items():
        schedule.times[rank, phase, step, batch] = dur_ns + 1
        if schedule.run()[1] > step_ns:
            lost[rank, PHASES.index(phase)] += dur_ns
        schedule.times[rank, phase, step, batch] = dur_ns
    own = {entry: ns for entry, ns in path.on_ns.items() if entry[0] is not None}
    assert own == lost


def test_a_stage_beside_a_heavy_one_is_hardly_on_the_path() -> None:
    schedule = Schedule(4, 1, batches=16, seed=3, least_ms=80, heavy=1)
    captured, _ = schedule.run()
    (path,) = paths_of(captured, {rank: rank for rank in range(4)})
    assert path.part(2) < 1 / 4
    assert path.part(1) > 3 / 4


def test_no_path_without_the_step_before_or_with_a_rank_missing() -> None:
    captured, _ = Schedule(2, 1, batches=4, seed=1).run()
    stages = {0: 0, 1: 1}
    assert paths_of([each for each in captured if each.iteration == 8], stages) == []
    assert paths_of([each for each in captured if (each.rank, each.iteration) != (1, 7)], stages) == []
    assert paths_of(captured, {}) == []


@pytest.mark.parametrize("seed", range(12))
def test_what_is_late_on_the_path_is_what_the_step_loses_by_it(seed: int) -> None:
    """In a pipeline of its own rank and replica, beside even ones; a third of a piece of work longer."""
    schedule = Schedule(4, 3, batches=8, seed=seed, least_ms=95, heavy=seed % 5)
    even_ns, late = schedule.run()[1], random.Random(seed).randrange(12)
    for (rank, phase, step, batch), dur_ns in schedule.times.items():
        if (rank, phase) == (late, "backward"):
            schedule.times[rank, phase, step, batch] = dur_ns * 4 // 3
    schedule.jitter_ns = 600_000
    captured, step_ns = schedule.run()
    (path,) = paths_of(captured, {rank: rank // 3 for rank in range(12)})
    found_ns = path.late_ns[late, PHASES.index("backward")]
    assert found_ns == pytest.approx(step_ns - even_ns, abs=0.02 * step_ns)


def folded(captured: list[CapturedRecord], stages: list[int]) -> WalkFold:
    ranks = list(range(len(stages)))
    fold = WalkFold(make_facts(world_size=len(stages), pipeline_parallel=2, pipeline_schedule=ONE_F_ONE_B))
    fold.node(NodeRecord("node0", ranks, ranks, [""] * len(ranks), stages))
    fold.window(CaptureRecord(7, 8, []))
    for each in captured:
        fold.add(each)
    return fold


def test_of_a_window_the_paths_are_summed() -> None:
    captured, step_ns = Schedule(2, 1, batches=4, seed=1).run()
    path = folded(captured, [0, 1]).result()
    assert path is not None and (path.steps, path.total_ns) == (1, step_ns)
    assert folded(captured, [0, 1, 1]).result() is None, "a rank that nothing came from"
    assert folded(captured, [0, 7]).result() is None, "a stage that the pipeline does not have"


@pytest.mark.parametrize(
    "damage",
    [
        {"marks": [1]},
        {"marks": []},
        {"marks": [126, -5]},
        {"marks": [124, 5]},
        {"train_step_ns": -1},
        {"start_ns": 0},
    ],
)
def test_a_damaged_step_has_no_path(damage: dict) -> None:
    captured, _ = Schedule(2, 1, batches=4, seed=1).run()
    assert folded([*captured[:-1], replace(captured[-1], **damage)], [0, 1]).result() is None


@pytest.mark.parametrize(
    ("on_path_ms", "label"), [(0, OFF_PATH), (18, OFF_PATH), (22, MEASURED), (40, MEASURED)]
)
def test_a_unit_that_is_late_beside_the_path_is_labelled(on_path_ms: int, label: str) -> None:
    late = Counter({(1, BACKWARD): 2 * on_path_ms * MS})
    path = PathTimes(2, {0: 0, 1: 0, 2: 1, 3: 1}, Counter(), late, Counter())
    ledger = ledger_of(
        recorded(2, range(40), lambda rank, _, phase: 40 * MS * ((rank, phase) == (1, BACKWARD)))
    )
    assert ledger is not None
    (row,) = path.mark(ledger).late
    assert (row.ranks, row.label) == ((1,), label)


def test_a_window_without_a_path_leaves_the_one_before_it() -> None:
    captured, _ = Schedule(2, 1, batches=4, seed=1).run()
    fold = folded(captured, [0, 1])
    path = fold.result()
    fold.window(CaptureRecord(90, 99, []))
    fold.add(replace(captured[0], iteration=90))
    assert path is not None and fold.result() == path


def test_ranks_of_several_machines_have_no_common_clock() -> None:
    captured, _ = Schedule(2, 1, batches=4, seed=1).run()
    fold = folded(captured[:2], [0, 1])
    fold.node(NodeRecord("node1", [1], [1], [""], [1]))
    for each in captured:
        fold.add(each)
    assert fold.result() is None
