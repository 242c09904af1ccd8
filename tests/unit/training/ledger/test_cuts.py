"""A rank's step cut where its collectives end."""

from __future__ import annotations

import pytest

from flagscale_perf.device.marks import start_of, stop_of
from flagscale_perf.training.ledger.cuts import BETWEEN, Cut, CutKeeper, cuts_of, work_of
from flagscale_perf.training.work import Microbatch
from tests.fakes import MS, make_marks, make_step
from tests.schedules import AGREE, DATA, FORWARD, GRADS

START, STOP = start_of(FORWARD) + 5, stop_of(FORWARD) + 9


def test_own_time_comes_before_the_wait_it_leads_to() -> None:
    spans = [(DATA, 2), (GRADS, 5), (GRADS, 1), (FORWARD, 0), (AGREE, 3), (DATA, 4), (GRADS, 7), (FORWARD, 9)]
    cuts, rest = cuts_of(spans)
    assert cuts == [Cut(GRADS, 6, {DATA: 2}), Cut(AGREE, 3, {}), Cut(GRADS, 7, {DATA: 4})]
    assert rest == {FORWARD: 9}


def test_what_comes_behind_the_last_cut_belongs_to_the_next_step() -> None:
    keeper = CutKeeper(Microbatch())
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
    keeper = CutKeeper(Microbatch())
    for number in range(1, 7):
        pause = {"checkpoint_ns": 50 * MS} if number == 3 else {}
        keeper.add(make_step(number, warmup=int(number == 1), **pause), make_marks(number).marks)
    assert [number for number in range(1, 7) if keeper.take(number)] == [5, 6]


def marks_of(passes: int) -> tuple[int, ...]:
    """So many forward passes."""
    return (START, STOP) * passes


@pytest.mark.parametrize(
    ("step", "passes", "each", "expected"),
    [
        ({}, 2, Microbatch(1, 4, 128), (1024, 1024 * 128, -1, 2)),
        ({}, 3, Microbatch(1, 4, 128), (1536, 1536 * 128, -1, 3)),  # one more than the host says
        ({}, 6, Microbatch(2, 4, 128), (1536, 1536 * 128, -1, 3)),  # each through both parts of the model
        ({}, 5, Microbatch(2, 4, 128), (1024, 1024 * 128, -1, 2)),  # not every pass is marked
        ({}, 0, Microbatch(1, 4, 128), (1024, 1024 * 128, -1, 2)),
        ({}, 3, Microbatch(0, 4, 128), (1024, 1024 * 128, -1, 2)),
        ({}, 2, Microbatch(1), (-1, -1, -1, 2)),
        ({"tokens": 1000}, 2, Microbatch(1, 4, 128), (-1, -1, -1, 2)),  # the host has counted shorter samples
        ({"tokens": 0, "samples": 0}, 2, Microbatch(1, 4, 128), (1024, 1024 * 128, -1, 2)),  # no update
        (
            {"rank_tokens": 500, "rank_squared_lengths": 9000, "rank_expert_tokens": 77},
            3,
            Microbatch(1),
            (500, 9000, 77, 3),
        ),
        ({"rank_expert_tokens": 77}, 2, Microbatch(1, 4, 128), (1024, 1024 * 128, 77, 2)),
    ],
)
def test_a_rank_s_work_by_what_it_counted_or_by_equal_samples(
    step: dict[str, int], passes: int, each: Microbatch, expected: tuple[int, ...]
) -> None:
    assert work_of(make_step(3, **step), marks_of(passes), each) == expected
