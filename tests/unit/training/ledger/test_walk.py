"""The critical path of a pipeline, against what a simulated 1F1B schedule loses to a rank that is late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from flagscale_perf.spine.chance import SURE_STEPS
from flagscale_perf.training.ledger import walk
from flagscale_perf.training.ledger.ledger import BY_PATH, MEASURED, OFF_PATH, LateRow, ledger_of
from flagscale_perf.training.ledger.walk import (
    WalkFold,
    gains_of,
    is_judged,
    paths_of,
    priced,
)
from flagscale_perf.training.phases import ONE_F_ONE_B, PHASES
from flagscale_perf.training.rank_records import NodeRecord
from flagscale_perf.training.records import CapturedRecord, CaptureRecord
from tests.fakes import make_facts
from tests.pipelines import Schedule
from tests.schedules import BACKWARD, MS, recorded


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


def late_row() -> LateRow:
    """Of a rank that is 40 ms late in a stage of two."""
    ledger = ledger_of(
        recorded(2, range(40), lambda rank, _, phase: 40 * MS * ((rank, phase) == (1, BACKWARD)))
    )
    assert ledger is not None
    (row,) = ledger.late
    assert is_judged(row)
    return row


def row_with(gains_ms: Sequence[float]) -> LateRow:
    return priced(late_row(), 40, [round(gain_ms * MS) for gain_ms in gains_ms])


@pytest.mark.parametrize(
    ("gains_ms", "price_ms", "label"),
    [
        ([10, 12, 14, 12, 11, 13], 12, BY_PATH),
        ([10, 12, 14, 12, 11, 900], 12, BY_PATH),  # a step that was held up otherwise
        ([0] * 6, 0, OFF_PATH),
        ([-2, 3, -3, 2, 0, 0], 0, OFF_PATH),
        ([10, 12, 11, 12, 13], 40, MEASURED),  # too few for an interval
        ([-1, 30, 31, 32, 33, 34], 40, MEASURED),  # nothing, or nearly all of it
    ],
)
def test_a_late_unit_of_a_pipeline_is_priced_by_what_the_job_gains(
    gains_ms: list[float], price_ms: float, label: str
) -> None:
    row = row_with(gains_ms)
    assert (row.price_ns, row.label) == (price_ms * 40 * MS, label)
    assert row.least_ns <= row.price_ns <= row.most_ns
    assert row.cost_ns == 40 * 40 * MS, "what its stage waits stays as it is: the rows add up"


@pytest.mark.parametrize(("steps", "least", "most"), [(6, 1, 6), (16, 4, 13)])
def test_the_interval_of_a_price_is_that_of_a_sign_test(steps: int, least: int, most: int) -> None:
    """The tables of the sign test: how many of the lowest and of the highest values are left out."""
    row = row_with(range(steps, 0, -1))
    assert (row.least_ns, row.most_ns) == (40 * least * MS, 40 * most * MS)


@pytest.mark.parametrize(("damaged", "steps"), [(False, 8), (True, 6)])
def test_every_captured_step_is_replayed_but_those_that_contradict_themselves(
    damaged: bool, steps: int
) -> None:
    """Rank 0's clock jumps by an hour in one step: this and the next one are out of joint."""
    captured, _ = Schedule(2, 2, batches=4, seed=1, least_ms=50, steps=9).run()
    hour_ns = 3600 * 10**9
    jumped = [
        replace(step, start_ns=step.start_ns + hour_ns * (damaged and (step.rank, step.iteration) == (0, 9)))
        for step in captured
    ]
    late = ((1,), PHASES.index("forward"))
    assert len(gains_of(jumped, {0: 0, 1: 0, 2: 1, 3: 1}, {late})[late]) == steps


def test_of_a_large_job_no_more_steps_are_replayed_than_an_interval_needs(monkeypatch) -> None:
    monkeypatch.setattr(walk, "MAX_SPANS", 10)
    captured, _ = Schedule(2, 2, batches=4, seed=1, least_ms=50, steps=9).run()
    late = ((1,), PHASES.index("forward"))
    assert len(gains_of(captured, {0: 0, 1: 0, 2: 1, 3: 1}, {late})[late]) == SURE_STEPS


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
