"""A rank's step cut where its collectives end."""

from __future__ import annotations

from flagscale_perf.training.ledger.cuts import BETWEEN, Cut, CutKeeper, cuts_of
from tests.fakes import MS, make_marks, make_step
from tests.schedules import AGREE, DATA, FORWARD, GRADS


def test_own_time_comes_before_the_wait_it_leads_to() -> None:
    spans = [(DATA, 2), (GRADS, 5), (GRADS, 1), (FORWARD, 0), (AGREE, 3), (DATA, 4), (GRADS, 7), (FORWARD, 9)]
    cuts, rest = cuts_of(spans)
    assert cuts == [Cut(GRADS, 6, {DATA: 2}), Cut(AGREE, 3, {}), Cut(GRADS, 7, {DATA: 4})]
    assert rest == {FORWARD: 9}


def test_what_comes_behind_the_last_cut_belongs_to_the_next_step() -> None:
    keeper = CutKeeper()
    for number in (1, 2, 3):
        keeper.add(make_step(number, train_step_ns=90 * MS, iteration_ns=100 * MS), make_marks(number).marks)
    assert keeper.take(1) is None, "nobody knows what was before it"
    second, third = keeper.take(2), keeper.take(3)
    assert second is not None and third is not None
    assert second.cuts[0].own_ns[BETWEEN] == 10 * MS
    whole = sum(cut.wait_ns + sum(cut.own_ns.values()) for cut in third.cuts)
    assert whole == 100 * MS, "from the last cut of the step before to its own"
    assert keeper.take(3) is None, "once"


def test_next_to_a_disturbed_step_nothing_is_compared() -> None:
    keeper = CutKeeper()
    for number in range(1, 7):
        pause = {"checkpoint_ns": 50 * MS} if number == 3 else {}
        keeper.add(make_step(number, warmup=int(number == 1), **pause), make_marks(number).marks)
    assert [number for number in range(1, 7) if keeper.take(number)] == [5, 6]
