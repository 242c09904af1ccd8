"""What a consumer waits for samples is what it was not given when it asked."""

from __future__ import annotations

from flagscale_perf.trace.analysis.sums import Waits
from tests.trace_runs import MS, make_wait


def waits(*requests: tuple[int, int, int], **changed: int) -> Waits:
    """Of when each begins and how long it takes, in ms, and how many samples it is told."""
    found = Waits()
    for at, took, rows in requests:
        found.add(make_wait(start_ns=at * MS, total_ns=took * MS, rows=rows, **changed), "train")
    return found


def test_from_the_first_request_that_finds_too_few_to_the_answer() -> None:
    found = waits((0, 1, 4), (10, 1, 0), (15, 1, 0), (20, 2, 4), (30, 1, 4))
    assert (found.requests, found.unanswered, found.answered, found.waited) == (5, 2, 3, 1)
    assert (found.waited_ns, found.first_ns) == (12 * MS, 0)


def test_a_request_that_takes_long_is_a_wait_and_a_slow_answer_is_none() -> None:
    found = waits((0, 1, 4), (10, 99, 4), (200, 100, 4))
    assert (found.waited, found.waited_ns) == (1, 100 * MS)


def test_the_first_samples_are_apart_and_what_never_came_is_no_wait() -> None:
    found = waits((0, 1, 0), (50, 1, 4), (60, 1, 0), (70, 1, 0))
    assert (found.first_ns, found.waited_ns, found.unanswered) == (51 * MS, 0, 3)


def test_what_failed_found_none() -> None:
    found = Waits()
    for wait in (make_wait(), make_wait(start_ns=10 * MS, rows=0, error=1), make_wait(start_ns=20 * MS)):
        found.add(wait, "train")
    assert found.waited_ns == 11 * MS
    assert found.as_dict() == {
        "requests": 3,
        "unanswered": 1,
        "answered": 2,
        "waited": 1,
        "waited_ns": 11 * MS,
        "first_ns": 0,
    }
