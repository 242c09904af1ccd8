"""Medians and spreads that a wild value does not move."""

from __future__ import annotations

import pytest

from flagscale_perf.training.ranks.robust import FEW, NORMAL, median_without, noise, spread, steady


def test_the_median_of_the_others() -> None:
    assert [median_without([1, 2, 4, 8], place) for place in range(4)] == [4, 4, 2, 2]
    assert [median_without([1, 2, 4], place) for place in range(3)] == [3, 2.5, 1.5]
    assert [median_without([1, 2], place) for place in range(2)] == [2, 1]


def test_a_spread_is_not_moved_by_a_wild_value() -> None:
    assert spread([1, 2, 3, 4, 1000]) == NORMAL * 1
    assert spread([1, 2, 3], 0) == NORMAL * 2


@pytest.mark.parametrize(
    ("three", "value"),
    [([3, 1, 2], 2), ([1, 900, 2], (1 + 2 + 4) / 3), ([-9, 3, 3], -1), ([-1, -2, 900], -1)],
)
def test_one_wild_value_of_three_moves_their_mean_little(three: list[float], value: float) -> None:
    assert steady(three) == value


def test_noise_counts_what_lasts_and_what_does_not() -> None:
    few = 1 + FEW / 8
    independent = [0.0, 1.0] * 4  # of three in a row 0 and 1 and 0 make 0, the others 2/3
    assert noise(independent) == pytest.approx(NORMAL / 3 * few)
    lasting = [0.0] * 4 + [1.0] * 4  # 0, 0, 0, 2/3, 1, 1
    assert noise(lasting) == pytest.approx(NORMAL / 3 * few)
    even_out = [0.0, 2.0, 1.0] * 3  # of three in a row always 1
    assert noise(even_out) == pytest.approx(NORMAL / 3**0.5 * (1 + FEW / 9))
