"""Bounded samples: their size, what they keep, and that they are repeatable."""

from __future__ import annotations

from flagscale_perf.training.samples import Reservoir, ThinnedRows


def test_a_reservoir_keeps_its_size_and_is_a_fair_and_repeatable_sample() -> None:
    one, two = Reservoir(1000), Reservoir(1000)
    for value in range(100_000):
        one.add(value)
        two.add(value)
    assert len(one._kept) == 1000
    assert (one.minimum, one.maximum) == (0, 99_999)
    assert [one.quantile(q) for q in (0.1, 0.5, 0.9)] == [two.quantile(q) for q in (0.1, 0.5, 0.9)]
    for share in (0.1, 0.5, 0.9):
        # the standard error of a quantile of 1000 is at most 1.6 % of the range
        assert abs((one.quantile(share) or 0) / 100_000 - share) < 0.05


def test_a_reservoir_of_few_numbers_is_exact() -> None:
    reservoir = Reservoir()
    assert (reservoir.quantile(0.5), reservoir.minimum, reservoir.maximum) == (None, None, None)
    for value in (30, 10, 20, 40):
        reservoir.add(value)
    assert [reservoir.quantile(q) for q in (0.25, 0.5, 0.75, 1.0)] == [10, 20, 30, 40]
    assert (reservoir.minimum, reservoir.maximum) == (10, 40)


def test_rows_are_thinned_evenly_and_end_with_the_last() -> None:
    thinned = ThinnedRows(limit=10)
    for number in range(1, 101):
        thinned.add(number)
        rows = thinned.rows()
        assert len(rows) <= 10
        assert (rows[0], rows[-1]) == (1, number)
    assert rows == [1, 17, 33, 49, 65, 81, 97, 100]


def test_of_rows_of_which_one_is_kept_it_is_the_largest() -> None:
    slow = {3, 40, 77, 99}
    thinned: ThinnedRows[int] = ThinnedRows(10, lambda number: 500 if number in slow else number % 7)
    for number in range(1, 1001):
        thinned.add(number)
        rows = thinned.rows()
        assert len(rows) <= 10 and rows == sorted(set(rows)) and rows[-1] == number
    assert rows[0] == 3  # the first of the largest of its stretch
    thinned = ThinnedRows(10, lambda number: 500 if number in slow else number % 7)
    for number in range(1, 101):
        thinned.add(number)
    assert slow <= set(thinned.rows())
