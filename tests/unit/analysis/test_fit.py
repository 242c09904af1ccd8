"""Costs by least squares: exact where the times are made of them, by hand where they are not."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.fit import independence, least_squares, non_negative

ROWS = [(1.0, 1.0, 1e3), (1.0, 4.0, 1e6), (1.0, 2.0, 1e9), (1.0, 8.0, 1e4)]
EQUAL = [1.0] * len(ROWS)


def times(*costs: float) -> list[float]:
    return [sum(cost * term for cost, term in zip(costs, row, strict=True)) for row in ROWS]


def test_costs_that_made_the_times_are_found_whatever_their_size() -> None:
    assert least_squares(ROWS, times(5e4, 300.0, 0.25), EQUAL) == pytest.approx([5e4, 300.0, 0.25])


def test_weights_count_as_repetitions() -> None:
    """Times 1, 1, 4 of a constant: their mean is 2, and 3 with the last one counted four times."""
    assert least_squares([(1.0,)] * 3, [1.0, 1.0, 4.0], [1.0] * 3) == pytest.approx([2.0])
    assert least_squares([(1.0,)] * 3, [1.0, 1.0, 4.0], [1.0, 1.0, 4.0]) == pytest.approx([3.0])


def test_terms_that_grow_together_have_no_answer() -> None:
    assert least_squares([(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)], [1.0, 2.0, 3.0], [1.0] * 3) is None


def test_how_independent_terms_are() -> None:
    assert independence([(1.0, 0.0), (0.0, 5.0)], [1.0, 2.0]) == pytest.approx(1.0)
    assert independence([(1.0, 2.0), (2.0, 4.0)], [1.0, 2.0]) == pytest.approx(0.0)
    assert independence([(1.0, 0.0), (2.0, 0.0)], [1.0, 2.0]) == 0.0


def test_a_cost_below_zero_is_left_out_and_the_others_are_fitted_anew() -> None:
    """Times 3, 2 at sizes 1, 2 fall: without the term of the size, their mean is left."""
    assert least_squares([(1.0, 1.0), (1.0, 2.0)], [3.0, 2.0], [1.0, 1.0]) == pytest.approx([4.0, -1.0])
    assert non_negative([(1.0, 1.0), (1.0, 2.0)], [3.0, 2.0], [1.0, 1.0]) == pytest.approx([2.5, 0.0])
    assert non_negative(ROWS, times(5e4, 0.0, 0.25), EQUAL) == pytest.approx([5e4, 0.0, 0.25], abs=1e-3)


def test_nothing_explains_times_below_zero() -> None:
    assert non_negative([(1.0,)], [-1.0], [1.0]) == [0.0]
