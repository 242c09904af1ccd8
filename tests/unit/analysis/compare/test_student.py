"""Quantiles against the printed table (Abramowitz and Stegun, table 26.10)."""

import pytest

from flagscale_perf.analysis.compare.student import cdf, quantile

TABLE = [
    (0.975, 1, 12.706),
    (0.975, 2, 4.303),
    (0.975, 4, 2.776),
    (0.995, 5, 4.032),
    (0.975, 8, 2.306),
    (0.95, 30, 1.697),
]


@pytest.mark.parametrize(("probability", "freedom", "expected"), TABLE)
def test_quantiles_are_those_of_the_table(probability, freedom, expected) -> None:
    assert quantile(probability, freedom) == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize("freedom", [1, 2, 3, 8, 40])
def test_the_distribution_is_symmetric_and_ends_at_1(freedom) -> None:
    assert cdf(0, freedom) == 0.5
    assert cdf(-1.5, freedom) + cdf(1.5, freedom) == pytest.approx(1)
    assert cdf(1e9, freedom) == pytest.approx(1)


def test_one_degree_is_the_distribution_of_cauchy() -> None:
    assert cdf(1, 1) == pytest.approx(0.75)
