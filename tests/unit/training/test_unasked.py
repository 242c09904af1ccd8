"""Windows that nobody asked for: once settled, on a late rank, and never more than a job can bear."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.training.rank_records import StragglerRecord
from flagscale_perf.training.settled import HORIZON, MIN_STEPS
from flagscale_perf.training.unasked import (
    AGAIN_NS,
    HOUR_NS,
    MARK_BYTES,
    RANK_BYTES,
    SETTLED,
    STEPS,
    STRAGGLER,
    WINDOW_BYTES,
    Unasked,
)
from tests.fakes import MS, make_step

MARKS = 89  # of 8 micro-batches
LATE = StragglerRecord(11, 20, False, [3], "n", "d", 0, "forward", 10 * MS, 110 * MS, "peers", None)


def made(first: int = 1, *, slow: int = 0, ranks: int = 8, has_first: bool = False) -> Unasked:
    """After `MIN_STEPS` steps, of which so many are slow."""
    unasked = Unasked(ranks, has_first)
    for iteration in range(first, first + MIN_STEPS):
        unasked.step(make_step(iteration, iteration_ns=(500 if iteration < first + slow else 100) * MS))
    return unasked


def test_a_window_begins_once_when_the_steps_have_settled() -> None:
    unasked = made(2, slow=5)
    assert unasked.due(10**9, MARKS) == SETTLED
    unasked.taken(10**9, MARKS)
    assert unasked.due(10**9 + HOUR_NS, MARKS) == ""


def test_none_begins_before_that_and_none_without_marks() -> None:
    assert Unasked(8, has_first=False).due(0, MARKS) == ""
    assert made(slow=12).due(0, MARKS) == "", "the start is longer than the rest"
    assert made().due(0, 0) == ""
    assert made(has_first=True).due(0, MARKS) == "", "the first one is asked for"


def test_steps_that_never_settle_are_captured_in_the_end() -> None:
    unasked = Unasked(8, has_first=False)
    for iteration in range(1, HORIZON):
        unasked.step(make_step(iteration, iteration_ns=(HORIZON - iteration) * MS))
    assert unasked.due(0, MARKS) == ""
    unasked.step(make_step(HORIZON))
    assert unasked.due(0, MARKS) == SETTLED


def test_a_late_rank_is_captured_at_most_once_in_ten_minutes() -> None:
    unasked = made()
    unasked.taken(0, MARKS)
    unasked.late(LATE)
    assert unasked.due(AGAIN_NS - 1, MARKS) == ""
    assert unasked.due(AGAIN_NS, MARKS) == STRAGGLER
    unasked.taken(AGAIN_NS, MARKS)
    assert unasked.due(2 * AGAIN_NS, MARKS) == "", "it was in that window"
    unasked.late(replace(LATE, ranks=[4]))
    unasked.late(replace(LATE, ranks=[4], is_over=True))
    assert unasked.due(2 * AGAIN_NS, MARKS) == "", "it is not late any more"


@pytest.mark.parametrize("marks", [89, 153, 610])
def test_an_hour_of_late_ranks_takes_no_more_than_a_megabyte_of_eight_ranks(marks: int) -> None:
    unasked, windows = made(), 0
    for second in range(2 * HOUR_NS // NS_PER_S):
        unasked.late(replace(LATE, iteration=second, first_iteration=second))
        if unasked.due(second * NS_PER_S, marks):
            unasked.taken(second * NS_PER_S, marks)
            windows += 1
    in_two_hours = windows * STEPS * 8 * marks * MARK_BYTES
    assert in_two_hours <= 2 * 8 * RANK_BYTES == 2 << 20
    assert windows == 12 or marks > 153, "every ten minutes, where that is little enough"
    assert windows >= 2


def test_a_job_too_large_for_a_window_is_captured_only_where_somebody_asks() -> None:
    most = WINDOW_BYTES // (STEPS * MARKS * MARK_BYTES)
    assert most > 1500
    assert made(ranks=most).due(0, MARKS) == SETTLED
    assert made(ranks=most + 1).due(0, MARKS) == ""
