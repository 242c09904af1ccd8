"""Ledgers of a run: one a stage, in bounded memory."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.training.ledger.fold import MAX_STEPS, LedgerFold
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
