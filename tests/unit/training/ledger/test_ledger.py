"""The ledger's rows add up to the mean step; what is planted in a rank is booked where it was planted."""

from __future__ import annotations

import random

import pytest

from flagscale_perf.training.ledger.ledger import Ledger, ledger_of
from flagscale_perf.training.phases import PHASES
from tests.schedules import BACKWARD, DATA, EVEN, FORWARD, MS, OPTIMIZER, STEP_NS, Extra, noise, recorded

STEPS = range(2, 82)
SCHEDULES = 1000


def ledger(ranks: int, extra: Extra, tensor: int = 1) -> Ledger:
    found = ledger_of(recorded(ranks, STEPS, extra, tensor))
    assert found is not None
    parts = [*found.base_ns.values(), *found.exchange_ns.values(), *(row.cost_ns for row in found.late)]
    assert sum(parts) + found.in_turns_ns + found.residual_ns == found.total_ns
    assert sum(turns.total_ns for turns in found.turns.values()) == found.in_turns_ns
    for unit in found.ranks:
        assert {phase: wait.exchange_ns for phase, wait in unit.waits.items()} == found.exchange_ns
        assert all(min(wait[:3]) >= 0 == wait.residual_ns for wait in unit.waits.values())
        assert sum(unit.own_ns.values()) + sum(map(sum, unit.waits.values())) == found.total_ns
    return found


def uneven(extra: Extra, seed: int = 1) -> Extra:
    """On top of noise of a hundredth."""
    beside = noise(0.01, seed)
    return lambda rank, step, phase: extra(rank, step, phase) + beside(rank, step, phase)


def planted(delays: dict[tuple[int, int], int]) -> Extra:
    """(rank, phase) -> nanoseconds in every step."""
    return uneven(lambda rank, step, phase: delays.get((rank, phase), 0))


def test_even_ranks_have_a_base_and_an_exchange_and_nobody_is_late() -> None:
    found = ledger(3, lambda rank, step, phase: 0)
    assert found.total_ns == STEP_NS * len(STEPS)
    assert (found.late, found.in_turns_ns, found.residual_ns) == ([], 0, 0)
    assert found.exchange_ns == {PHASES[wait]: ns * len(STEPS) for wait, ns, _ in EVEN}
    assert found.base_ns["forward"] == 30 * MS * len(STEPS)


def test_what_is_late_in_every_step_and_more_so_in_some_is_counted_once() -> None:
    def delays(rank: int, step: int, phase: int) -> int:
        return ((rank, phase) == (1, DATA)) * (10 * MS + 40 * MS * (step % 10 == 0))

    rows = {row.pattern: row for row in ledger(4, uneven(delays)).late}
    assert {pattern: row.alone_ns / MS for pattern, row in rows.items()} == {
        "constant": pytest.approx(10 * len(STEPS), rel=0.1),
        "periodic": pytest.approx(40 * 8, rel=0.1),
    }


def test_every_rank_s_wait_is_exchange_and_waiting_for_late_ranks() -> None:
    late = ledger(3, lambda rank, step, phase: 20 * MS * ((rank, phase) == (1, FORWARD)))
    first, second, _ = (unit.waits["exposed_grad_comm"] for unit in late.ranks)
    assert first == (5 * MS * len(STEPS), 20 * MS * len(STEPS), 0, 0)
    assert second == (5 * MS * len(STEPS), 0, 0, 0)
    assert late.ranks[1].own_ns["forward"] == 50 * MS * len(STEPS)


def test_of_many_ranks_a_usual_one_is_shown() -> None:
    (usual,) = ledger(20, lambda rank, step, phase: 20 * MS * ((rank, phase) == (1, FORWARD))).ranks
    assert (usual.ranks, usual.own_ns["forward"]) == ((), 30 * MS * len(STEPS))
    assert usual.waits["exposed_grad_comm"] == (5 * MS * len(STEPS), 20 * MS * len(STEPS), 0, 0)


@pytest.mark.parametrize("phase", [DATA, FORWARD, BACKWARD, OPTIMIZER])
@pytest.mark.parametrize("ranks", [2, 4, 20])
def test_a_late_rank_is_named_with_its_cost(phase: int, ranks: int) -> None:
    (row,) = ledger(ranks, planted({(1, phase): 20 * MS})).late
    assert (row.ranks, row.phase, row.pattern) == ((1,), PHASES[phase], "constant")
    assert (row.label, row.last_in) == ("measured", len(STEPS))
    assert row.cost_ns == pytest.approx(20 * MS * len(STEPS), rel=0.1)
    assert row.least_ns <= row.cost_ns <= row.most_ns


def test_two_ranks_late_in_one_segment_share_what_only_both_gain() -> None:
    found = ledger(4, planted({(1, DATA): 20 * MS, (2, BACKWARD): 20 * MS}))
    assert {(row.ranks, row.phase) for row in found.late} == {((1,), "data_loading"), ((2,), "backward")}
    assert {row.label for row in found.late} == {"shared"}
    assert found.late_ns == pytest.approx(20 * MS * len(STEPS), rel=0.1)
    assert all(row.alone_ns < 2 * MS * len(STEPS) for row in found.late)


def test_ranks_late_on_the_way_to_different_cuts_cost_their_sum() -> None:
    other = PHASES.index("other")
    found = ledger(4, planted({(1, FORWARD): 20 * MS, (2, other): 30 * MS}))
    assert [(row.ranks, row.phase) for row in found.late] == [((2,), "other"), ((1,), "forward")]
    assert found.late_ns == pytest.approx(50 * MS * len(STEPS), rel=0.1)
    assert [row.label for row in found.late] == ["undecided", "measured"]


def test_a_lead_that_is_made_up_for_before_the_cut_costs_nothing() -> None:
    found = ledger(2, planted({(1, DATA): 20 * MS, (0, FORWARD): 20 * MS}))
    assert found.late_ns == pytest.approx(20 * MS * len(STEPS), rel=0.1)
    assert all(row.alone_ns < 2 * MS * len(STEPS) for row in found.late)


def test_what_comes_every_few_steps_has_its_period() -> None:
    at = (1, FORWARD)
    extra = uneven(lambda rank, step, phase: 100 * MS * ((rank, phase) == at and step % 8 == 3))
    (row,) = ledger(2, extra).late
    assert (row.ranks, row.phase, row.pattern, row.distance) == ((1,), "forward", "periodic", 8)
    assert row.cost_ns == pytest.approx(100 * MS * 10, rel=0.05)


def test_what_grows_and_what_lasts_since_a_step() -> None:
    at = (0, BACKWARD)
    growing = uneven(lambda rank, step, phase: MS * step * ((rank, phase) == at))
    lasting = uneven(lambda rank, step, phase: 40 * MS * ((rank, phase) == at and step >= 42))
    (row,) = ledger(2, growing).late
    assert (row.phase, row.pattern) == ("backward", "growing")
    assert row.cost_ns == pytest.approx(sum(STEPS) * MS, rel=0.1)
    (row,) = ledger(2, lasting).late
    assert (row.phase, row.pattern, row.first_iteration) == ("backward", "lasting", 42)
    assert row.cost_ns == pytest.approx(40 * 40 * MS, rel=0.1)


def test_a_stop_has_rank_and_step() -> None:
    stops = (1, FORWARD, 23)
    extra = uneven(lambda rank, step, phase: 10_000 * MS * ((rank, phase, step) == stops))
    (row,) = ledger(2, extra).late
    assert (row.ranks, row.phase, row.pattern, row.first_iteration) == ((1,), "forward", "single", 23)
    assert row.cost_ns == pytest.approx(10_000 * MS, rel=0.01)


def test_ranks_that_do_every_step_together_are_one_unit() -> None:
    """Tensor-parallel members wait for one another inside: which of them is late is not decided."""
    (row,) = ledger(4, planted({(2, FORWARD): 20 * MS, (3, FORWARD): 20 * MS}), tensor=2).late
    assert (row.ranks, row.label) == ((2, 3), "undecided")


@pytest.mark.parametrize("seed", range(20))
def test_uneven_ranks_are_not_late(seed: int) -> None:
    """A maximum over ranks costs time though nobody is late: it is everybody's, in turns."""
    found = ledger(2 + seed % 7, noise(0.1, seed))
    assert found.late == []
    assert found.in_turns_ns > 0.01 * found.total_ns


def test_rows_are_the_truth_to_the_nanosecond() -> None:
    """Random schedules: what all wait for is the exchange, whoever is last and however late."""
    for seed in range(SCHEDULES):
        draw = random.Random(seed)
        ranks = draw.randrange(2, 65)
        found = ledger_of(recorded(ranks, range(2, 8), lambda *at, draw=draw: draw.randrange(50 * MS)))
        assert found is not None
        assert found.exchange_ns == {PHASES[wait]: 6 * ns for wait, ns, _ in EVEN}
        assert found.residual_ns == 0
        assert sum(found.base_ns.values()) + found.in_turns_ns == found.total_ns - 6 * sum(
            ns for _, ns, _ in EVEN
        )


@pytest.mark.parametrize("ranks", [2, 4])
def test_without_its_lateness_a_rank_is_as_uneven_as_the_others(ranks: int) -> None:
    """Beside the same steps without the delay: where chance is as large as the lateness, it stays."""
    chance, delay = noise(0.1, 3), {(1, FORWARD): 10 * MS}
    late = ledger(ranks, lambda *at: chance(*at) + delay.get((at[0], at[2]), 0))
    even = ledger(ranks, noise(0.1, 3))
    truth_ms = late.step_ms(late.total_ns) - even.step_ms(even.total_ns)
    (row,) = late.late
    assert truth_ms < 8 and late.step_ms(row.cost_ns) == pytest.approx(truth_ms, rel=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_what_comes_in_turns_gains_what_the_step_is_longer_by_it(seed: int) -> None:
    chance, draw = noise(0.05, seed), random.Random(seed)
    who = [draw.randrange(4) for _ in range(2000)]

    def extra(rank: int, step: int, phase: int) -> int:
        return chance(rank, step, phase) + 40 * MS * ((rank, phase) == (who[step], DATA))

    late, even = ledger(4, extra), ledger(4, noise(0.05, seed))
    truth_ms = late.step_ms(late.total_ns) - even.step_ms(even.total_ns)
    turns = late.turns["data_loading"]
    assert late.step_ms(turns.gain_ns) == pytest.approx(truth_ms, rel=0.12)
    assert turns.gain_ns < turns.total_ns
