"""The slowest steps, and what made them slow."""

from __future__ import annotations

import pytest

from flagscale_perf.training.ledger.ledger import ledger_of
from flagscale_perf.training.ledger.slowest import MOST, SlowestStep
from tests.schedules import FORWARD, MS, STEP_NS, Extra, recorded


def slowest(ranks: int, extra: Extra) -> list[SlowestStep]:
    found = ledger_of(recorded(ranks, range(2, 42), extra))
    assert found is not None
    return list(found.slowest)


@pytest.mark.parametrize("ranks", [3, 20])
def test_a_late_rank_and_a_step_in_which_all_took_longer(ranks: int) -> None:
    def extra(rank: int, step: int, phase: int) -> int:
        mine = 90 * MS if (rank, step) == (1, 7) else 0
        return (mine + 60 * MS * (step == 30)) * (phase == FORWARD)

    late, common = slowest(ranks, extra)
    assert late == SlowestStep(7, STEP_NS + 90 * MS, 90 * MS, (1,), "forward", 90 * MS)
    assert common == SlowestStep(30, STEP_NS + 60 * MS, 60 * MS, (), "forward", 60 * MS)


def test_even_steps_are_not_slow_and_of_many_slow_ones_the_longest_are_told() -> None:
    assert slowest(3, lambda rank, step, phase: 0) == []
    many = slowest(3, lambda rank, step, phase: step * 10 * MS * (step < 18) * (phase == FORWARD))
    assert [each.iteration for each in many] == list(range(17, 17 - MOST, -1))
