"""Ranks side by side: all of few, the latest of many."""

from __future__ import annotations

from flagscale_perf.training.ledger.cuts import StepCuts
from flagscale_perf.training.ledger.rows import KEPT_UNITS, Member, records_of
from tests.schedules import FORWARD, MS, noise, recorded, steps_of


def members(ranks: int, late: int = -1) -> list[Member]:
    uneven = noise(0.01, 1)
    steps = steps_of(
        ranks,
        range(2, 4),
        lambda rank, step, phase: uneven(rank, step, phase) + 90 * MS * ((rank, phase) == (late, FORWARD)),
    )
    return [Member(rank, rank, made) for rank, made in enumerate(steps)]


def test_of_few_ranks_every_row_is_kept() -> None:
    records = recorded(KEPT_UNITS, range(2, 4), lambda rank, step, phase: rank)
    assert [record.iteration for record in records] == [2, 3]
    assert records[0].ranks == list(range(KEPT_UNITS))
    assert records[0].sizes == [1] * KEPT_UNITS


def test_of_many_the_latest_at_each_cut_the_suspects_and_what_is_usual() -> None:
    for record in records_of(0, members(100, late=17), suspects={42}):
        assert record.units == 100 and len(record.sizes) <= 6
        assert record.ranks[0] == 42 and 17 in record.ranks
        assert record.sizes[-1] == 0, "what is usual has no ranks"
        usual = record.own_ns[-len(record.columns) :]
        forward = [column % 32 for column in record.columns].index(FORWARD)
        assert abs(usual[forward] - 30 * MS) < 0.1 * MS


def test_steps_that_not_everybody_has_or_with_other_cuts_are_not_compared() -> None:
    found = members(3)
    found[1] = found[1]._replace(steps=found[1].steps[:1])
    assert [record.iteration for record in records_of(0, found, ())] == [2]
    step = found[0].steps[0]
    found[0] = found[0]._replace(steps=[StepCuts(2, step.cuts[:1])])
    assert records_of(0, found, ()) == []
    assert records_of(0, found[:1], ()) == [], "alone"
