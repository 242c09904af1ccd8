"""Ledgers of a run: one a stage, in bounded memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flagscale_perf.training.ledger.fold import MAX_STEPS, LedgerFold, late_share
from flagscale_perf.training.phases import PHASES
from tests.schedules import noise, recorded


def test_every_stage_has_its_own_from_the_step_asked_for_on() -> None:
    fold = LedgerFold()
    for record in recorded(2, range(2, 12), noise(0.01, 1)):
        fold.add(record)
        fold.add(replace(record, stage=1))
    assert [(each.stage, each.first_iteration, each.steps) for each in fold.result(5)] == [
        (0, 5, 7),
        (1, 5, 7),
    ]


def test_of_a_long_run_stretches_are_kept() -> None:
    fold = LedgerFold()
    (record,) = recorded(2, [2], noise(0.01, 1))
    for iteration in range(2, 3 * MAX_STEPS):
        fold.add(replace(record, iteration=iteration))
    (ledger,) = fold.result(0)
    assert MAX_STEPS / 4 <= ledger.steps <= MAX_STEPS
    assert ledger.total_ns % ledger.steps == 0


def test_late_ranks_count_once_of_the_stage_that_waits_longest() -> None:
    fold, ms = LedgerFold(), 1_000_000
    for stage, late_ms in ((0, 20), (1, 40)):

        def late(rank: int, iteration: int, phase: int, ns: int = late_ms * ms) -> int:
            return ns if rank == 1 and PHASES[phase] == "forward" else 0

        for record in recorded(2, range(2, 80), late):
            fold.add(replace(record, stage=stage))
    first, second = fold.result(0)
    assert late_share([first, second]) == second.share(second.late_ns) > first.share(first.late_ns) > 0
    assert fold.rows == 2 * 2 * 78
    loads = replace(first.late[0], phase="data_loading", ranks=(0,))  # it is in rank 0's data stall
    assert late_share([replace(first, late=[loads])]) == 0.0
    assert late_share([]) is None


COSTS = {"tokens": 10, "squared_lengths": 0.5}


def share_of(units: int, ranks: list[int], sizes: list[int], work: list[int]) -> float | None:
    (record,) = recorded(2, [2], noise(0.01, 1))
    rows, columns, cuts = len(sizes), len(record.columns), len(record.waits)
    lists = {"own_ns": [1] * columns * rows, "wait_ns": [1] * cuts * rows}
    fold = LedgerFold()
    fold.add(replace(record, units=units, ranks=ranks, sizes=sizes, work=work, **lists))
    return fold.share_of_rank_0(COSTS)


def test_what_all_ranks_did_against_as_many_as_rank_0() -> None:
    first, second = [100, 2000, -1, 1], [100, 6000, -1, 1]
    assert share_of(2, [0, 1], [1, 1], first + second) == pytest.approx((2000 + 4000) / 4000)
    # a unit of two ranks counts once; the row without ranks stands for the other 7
    assert share_of(9, [0, 1, 4], [2, 1, 0], first + first + second) == pytest.approx(
        (4000 + 7 * 4000) / 18000
    )
    assert share_of(2, [1, 2], [1, 1], first + second) is None, "rank 0 has no row"
    assert share_of(2, [0, 1], [1, 1], [*first, 100, -1, -1, 1]) is None
    assert share_of(2, [0, 1], [1, 1], [0, 0, -1, 1] * 2) is None


@pytest.mark.parametrize(
    "costs",
    [
        None,
        {},
        {"tokens": "10", "squared_lengths": 1},
        {"tokens": 1e308, "squared_lengths": 1e308},
        COSTS | {"expert_tokens": 3},
    ],
)
def test_without_the_cost_of_all_of_it_there_is_no_share(costs: dict | None) -> None:
    fold = LedgerFold()
    (record,) = recorded(2, [2], noise(0.01, 1))
    fold.add(replace(record, work=[100, 2000, -1, 1] * 2))
    assert fold.share_of_rank_0(COSTS) == 1.0
    assert fold.share_of_rank_0(costs) is None
