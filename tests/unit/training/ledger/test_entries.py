"""Steps booked as if batches were even: what that gains is a row, and the rest adds up."""

from __future__ import annotations

import pytest

from flagscale_perf.training.ledger.book import book_of, lateness_of
from flagscale_perf.training.ledger.division import Division, Inside
from flagscale_perf.training.ledger.entries import Uneven, entries_of, spread_of
from tests.schedules import noise, recorded, takes, with_work

PRICE, STEPS = {"tokens": 6e9}, range(2, 62)


def work(rank: int, step: int) -> tuple[int, int]:
    """The rank that has twice as much changes from step to step."""
    return 8000 if step % 4 == rank else 4000, 1


def test_even_batches_leave_the_mean_of_all_ranks() -> None:
    by_work, uneven = takes(work, 4000, 0.0), noise(0.001, 1)
    records = with_work(recorded(4, STEPS, lambda *at: by_work(*at) + uneven(*at)), work)
    book = book_of(records, PRICE)
    assert book is not None
    entries, found = entries_of(book, [], {}, Division(book, lateness_of(book)).common_speeds())
    # One of four takes 90 ms longer, and all four the mean of that.
    assert abs(found.cost_ns / len(STEPS) - 67.5e6) < 1e6
    assert found.steps == len(STEPS)
    assert abs(sum(entries.in_turns_ns)) < 0.01 * found.cost_ns
    booked = sum(entries.base_ns.values()) + sum(entries.exchange_ns.values()) + sum(entries.in_turns_ns)
    assert booked + found.cost_ns == sum(step.dur_ns for step in book.steps)


def test_without_a_speed_nothing_is_told_apart() -> None:
    book = book_of(with_work(recorded(4, STEPS, noise(0.05, 1)), work), PRICE)
    assert book is not None
    entries, found = entries_of(book, [], {}, {})
    assert found == Uneven() and set(entries.uneven_ns) == {0}


def test_waiting_inside_the_layers_is_added() -> None:
    inside = Inside(None, 1, 10, 5, 20, [1, 2], 1.5, "its own")
    assert Uneven(1, 2, 3, 1).plus(inside) == Uneven(11, 7, 23, 2)


def test_the_error_of_a_sum_is_from_blocks_of_steps() -> None:
    assert spread_of([1] * 20) == 0
    assert spread_of([0] * 5 + [1] * 5) == pytest.approx(5)
