"""Lateness is divided into more work and slower at equal work as planted, and the rows still add up."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from flagscale_perf.training.ledger.ledger import LateRow, Ledger, ledger_of
from tests.schedules import BACKWARD, DATA, FORWARD, MS, Extra, Work, noise, recorded, takes, with_work

STEPS = range(2, 122)
USUAL = 4000
PRICE = {"tokens": 6e9}
CONSTANT = 0.4  # of a rank's computing, whatever it has to do


def ledger(ranks: int, work: Work, *slower: Extra, constant: float = CONSTANT, noisy: float = 0.02) -> Ledger:
    extras = [takes(work, USUAL, constant), noise(noisy, 7), *slower]
    records = recorded(ranks, STEPS, lambda *at: sum(extra(*at) for extra in extras))
    found = ledger_of(with_work(records, work), PRICE)
    assert found is not None
    assert sum(row.total_ns for row in found.rows) == found.total_ns
    return found


def drawn(shares: dict[int, float], spread: float, seed: int = 3) -> Work:
    """Tokens that differ from step to step and rank to rank, of some ranks so many times as many."""
    draw = random.Random(seed)
    found = {
        (rank, step): (round(USUAL * shares.get(rank, 1.0) * draw.uniform(1 - spread, 1 + spread)), 1)
        for step in range(200)
        for rank in range(64)
    }
    return lambda rank, step: found[rank, step]


def slow(rank: int, forward: int = 0, backward: int = 0) -> Extra:
    ns = {(rank, FORWARD): forward * MS, (rank, BACKWARD): backward * MS}
    return lambda who, step, phase: ns.get((who, phase), 0)


def shares(found: Ledger) -> dict[str, float]:
    """What more work explains of the cost, by phase."""
    assert {row.ranks for row in found.late} == {(1,)}
    return {row.phase: (row.more_work or (-1.0,))[0] for row in found.late}


@pytest.mark.parametrize("ranks", [2, 4, 20])
def test_more_work_is_priced_by_how_long_more_work_takes(ranks: int) -> None:
    found = ledger(ranks, drawn({1: 1.5}, 0.2))
    assert {row.cause for row in found.late} == {"work"}
    assert shares(found) == {"forward": pytest.approx(1, abs=0.2), "backward": pytest.approx(1, abs=0.2)}
    assert [row.work_ratio for row in found.late] == [pytest.approx(1.5, rel=0.05)] * 2


@pytest.mark.parametrize("ranks", [2, 4, 20])
def test_a_slow_rank_with_the_others_work_is_slower(ranks: int) -> None:
    found = ledger(ranks, drawn({}, 0.2), slow(1, 12, 25))
    assert {row.cause for row in found.late} == {"speed"}
    assert shares(found) == {"forward": pytest.approx(0, abs=0.2), "backward": pytest.approx(0, abs=0.2)}


@pytest.mark.parametrize("ranks", [2, 4, 20])
def test_both_are_told_apart(ranks: int) -> None:
    found = ledger(ranks, drawn({1: 1.5}, 0.2), slow(1, 9, 18))
    assert {row.cause for row in found.late} == {"both"}
    assert shares(found) == {"forward": pytest.approx(0.5, abs=0.1), "backward": pytest.approx(0.5, abs=0.1)}
    for row in found.late:
        assert row.more_work_least_ns is not None and row.more_work_most_ns is not None
        assert row.more_work_least_ns <= (row.more_work_ns or 0) <= row.more_work_most_ns


def test_one_more_micro_batch_takes_as_long_as_the_others() -> None:
    """Nothing differs from step to step, nor has to: its other micro-batches say how long one takes."""
    found = ledger(4, lambda rank, step: (USUAL * 5 // 4, 5) if rank == 1 else (USUAL, 4), constant=0.0)
    assert {row.cause for row in found.late} == {"work"}
    assert {(row.work_speed, row.work_kind) for row in found.late} == {(None, "micro-batches")}


def test_of_work_that_never_differs_it_is_said_what_is_assumed() -> None:
    """How much of its time a micro-batch takes whatever is in it cannot be seen."""

    def work(rank: int, step: int) -> tuple[int, int]:
        return USUAL * 3 // 2 if rank == 1 else USUAL, 1

    alone, beside = ledger(4, work, constant=0.1), ledger(4, work, slow(1, 9, 18))
    assert {row.work_kind for row in alone.late} == {"documents"}
    for found, cause in ((alone, "work"), (beside, None)):
        assert {(row.cause, row.work_speed) for row in found.late} == {(cause, "assumed")}


def test_the_peers_tell_how_long_the_work_of_a_rank_takes_that_always_has_as_much() -> None:
    work = drawn({}, 0.3)
    found = ledger(4, lambda rank, step: (USUAL * 3 // 2, 1) if rank == 1 else work(rank, step))
    assert {row.cause for row in found.late} == {"work"}


def test_without_the_models_flops_or_the_work_nothing_is_said_of_it() -> None:
    work = drawn({1: 1.5}, 0.2)
    records = recorded(4, STEPS, takes(work, USUAL, CONSTANT))
    for found in (ledger_of(records, PRICE), ledger_of(with_work(records, work))):
        assert found is not None and found.late
        assert {(row.cause, row.more_work_ns) for row in found.late} == {(None, None)}


@pytest.mark.parametrize(("work", "cause"), [({}, "speed"), ({1: 1.5}, None)])
def test_a_phase_that_does_not_compute_is_never_longer_for_more_work(
    work: dict[int, float], cause: str | None
) -> None:
    found = ledger(4, drawn(work, 0.1), lambda *at: 20 * MS * (at[::2] == (1, DATA)))
    (row,) = (row for row in found.late if row.phase == "data_loading")
    assert row.cause == cause


@pytest.mark.parametrize("ranks", [2, 4, 8, 20])
def test_batches_uneven_in_turns_are_one_row_and_nobody_is_late(ranks: int) -> None:
    work = drawn({}, 0.5)
    found = ledger(ranks, work, noisy=0.005)
    assert found.late == []
    longest = [max(work(rank, step)[0] for rank in range(ranks)) for step in STEPS]
    average = [sum(work(rank, step)[0] for rank in range(ranks)) / ranks for step in STEPS]
    truth_ms = 90 * (1 - CONSTANT) * (sum(longest) - sum(average)) / USUAL / len(STEPS)
    assert found.step_ms(found.uneven.cost_ns) == pytest.approx(truth_ms, rel=0.2)
    assert found.uneven.least_ns <= found.uneven.cost_ns <= found.uneven.most_ns
    assert found.in_turns_ns < found.uneven.cost_ns / 2


@pytest.mark.parametrize("seed", range(20))
def test_even_batches_and_uneven_ranks_are_no_uneven_batches(seed: int) -> None:
    work = drawn({}, 0.3, seed)
    extra = noise(0.1, seed)
    found = ledger_of(with_work(recorded(2 + seed % 7, STEPS, extra), work), PRICE)
    assert found is not None
    assert (found.late, found.uneven.cost_ns) == ([], 0)


def test_beside_uneven_batches_a_slow_rank_is_slow() -> None:
    found = ledger(4, drawn({}, 0.3), slow(1, 30, 0))
    (row,) = (row for row in found.late if row.phase == "forward")
    assert (row.ranks, row.cause) == ((1,), "speed")


@pytest.mark.parametrize(
    ("part", "cause"),
    [
        ((0.9, 0.8, 1.0), "work"),
        ((0.9, 0.5, 1.0), None),
        ((0.1, 0.0, 0.2), "speed"),
        ((0.5, 0.4, 0.6), "both"),
        ((0.5, 0.0, 1.0), None),
    ],
)
def test_a_cause_explains_four_fifths(part: tuple[float, float, float], cause: str | None) -> None:
    share, least, most = (round(1000 * each) for each in part)
    row = LateRow(
        ranks=(1,), phase="forward", pattern="constant", usual_ns=1, distance=None, first_iteration=1,
        iteration=2, steps=2, last_in=2, cost_ns=1000, alone_ns=1, least_ns=1, most_ns=1, label="measured",
        more_work_ns=share, more_work_least_ns=least, more_work_most_ns=most,
    )  # fmt: skip
    assert row.cause == cause


@pytest.mark.parametrize(("hot", "ranks_of_row"), [((1,), (1,)), ((0, 1, 2, 3), None)])
def test_ranks_that_wait_inside_their_layers_wait_for_the_busiest_experts(
    hot: tuple[int, ...], ranks_of_row: tuple[int, ...] | None
) -> None:
    """All take as long: nobody is late at a cut. The hot expert is on one rank, or now here and now there."""
    draw, even, ns_per_token = random.Random(2), noise(0.01, 4), {FORWARD: 3000, BACKWARD: 6000}
    more = {step: (draw.choice(hot), draw.randrange(0, 8000)) for step in STEPS}
    records = recorded(
        4,
        STEPS,
        lambda rank, step, phase: even(rank, step, phase) + ns_per_token.get(phase, 0) * more[step][1],
    )
    for number, record in enumerate(with_work(records, lambda rank, step: (USUAL, 1))):
        who, tokens = more[record.iteration]
        received = [USUAL + tokens * (rank == who) - tokens // 3 * (rank != who) for rank in range(4)]
        work = [value for rank in range(4) for value in (USUAL, -1, received[rank], 1)]
        records[number] = replace(record, work=work)
    price = PRICE | {"expert_tokens": 3e9}
    found = ledger_of(records, price, has_divided_experts=True)
    assert found is not None
    assert sum(row.total_ns for row in found.rows) == found.total_ns
    truth_ms = sum(tokens for _, tokens in more.values()) * 0.009 / len(STEPS)
    if ranks_of_row is None:
        assert (found.late, found.step_ms(found.uneven.cost_ns)) == ([], pytest.approx(truth_ms, rel=0.1))
    else:
        assert {(row.ranks, row.cause, row.label, row.work_kind) for row in found.late} == {
            (ranks_of_row, "work", "inside the layers", "experts")
        }
        assert found.step_ms(found.late_ns) == pytest.approx(truth_ms, rel=0.1)
    together = ledger_of(records, price)
    assert together is not None and (together.late, together.uneven.cost_ns) == ([], 0)


@pytest.mark.parametrize("seed", range(10))
def test_experts_that_nobody_waits_for_are_in_no_row(seed: int) -> None:
    draw, records = random.Random(seed), recorded(4, STEPS, noise(0.05, seed))
    for number, record in enumerate(records):
        work = [value for _ in range(4) for value in (USUAL, -1, draw.randrange(3000, 5000), 1)]
        records[number] = replace(record, work=work)
    found = ledger_of(records, PRICE | {"expert_tokens": 3e9}, has_divided_experts=True)
    assert found is not None and (found.late, found.uneven.cost_ns) == ([], 0)


@pytest.mark.parametrize("beside_ms", [0, 10, 20])
def test_experts_that_are_always_as_hot_are_priced_by_both_passes(beside_ms: int) -> None:
    """No step tells what a FLOP takes; both passes take as long beside theirs, the backward one has twice."""
    takes_ms = {FORWARD: beside_ms + 25 - 30, BACKWARD: beside_ms + 50 - 60}  # beyond what is even there
    records = recorded(2, STEPS, lambda rank, step, phase: takes_ms.get(phase, 0) * MS)
    work = [value for received in (7000, 1000) for value in (USUAL, -1, received, 1)]
    price = PRICE | {"expert_tokens": 3e9}
    found = ledger_of([replace(record, work=work) for record in records], price, has_divided_experts=True)
    assert found is not None
    truth_ms = (25 + 50) * 3000 * 3e9 / (USUAL * 6e9 + 7000 * 3e9)
    least_ms, most_ms = (sum(getattr(row, name) for row in found.late) for name in ("least_ns", "most_ns"))
    assert {(row.ranks, row.cause, row.work_speed) for row in found.late} == {((0,), "work", "assumed")}
    assert found.step_ms(found.late_ns) == pytest.approx(truth_ms, rel=0.2)
    assert found.step_ms(least_ms) <= truth_ms + 1e-3 and truth_ms <= found.step_ms(most_ms) + 1e-3


def test_of_experts_nobody_counts_no_time_is_assumed() -> None:
    """A rank's tokens may go to other ranks' experts: its dense FLOPs do not say what its time goes with."""

    def work(rank: int, step: int) -> tuple[int, int]:
        return USUAL * 3 // 2 if rank == 1 else USUAL, 1

    records = with_work(recorded(4, STEPS, takes(work, USUAL, 0.1)), work)
    price = PRICE | {"expert_tokens": 3e9}
    for has_divided_experts, cause in ((True, None), (False, "work")):
        found = ledger_of(records, price, has_divided_experts)
        assert found is not None and {row.cause for row in found.late} == {cause}
        assert {row.more_work_ns is None for row in found.late} == {has_divided_experts}


@pytest.mark.parametrize("is_known", [True, False])
def test_work_dealt_one_rank_after_the_other_is_nobody_s(is_known: bool) -> None:
    def work(rank: int, step: int) -> tuple[int, int]:
        return USUAL * 2 if step % 4 == rank else USUAL, 1

    longer, uneven = takes(work, USUAL, CONSTANT), noise(0.01, 5)
    records = recorded(4, STEPS, lambda *at: longer(*at) + uneven(*at))
    found = ledger_of(with_work(records, work) if is_known else records, PRICE)
    assert found is not None and found.late == []
    truth_ms = 90 * (1 - CONSTANT) * 3 / 4
    if is_known:
        assert found.step_ms(found.uneven.cost_ns) == pytest.approx(truth_ms, rel=0.1)
    else:
        assert found.step_ms(found.in_turns_ns) == pytest.approx(90 * (1 - CONSTANT), rel=0.1)
