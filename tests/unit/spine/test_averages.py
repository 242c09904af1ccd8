"""The one definition of each."""

from __future__ import annotations

import pytest

from flagscale_perf.spine.averages import (
    deviation,
    mean,
    mean_counted,
    mean_of_all,
    median,
    percentile,
    scatter,
)


def test_the_median_of_an_odd_and_an_even_number() -> None:
    assert (median([3, 1, 2]), median([4, 1, 2, 3])) == (2, 2.5)


def test_the_mean_and_the_deviation() -> None:
    assert (mean([1, 4]), deviation([1, 3]), deviation([7])) == (2.5, 2**0.5, 0)


@pytest.mark.parametrize(("values", "value"), [([1, 4], 2.5), ([1, None], None), ([], None)])
def test_the_mean_of_all_is_not_known_where_one_is_not(
    values: list[float | None], value: float | None
) -> None:
    assert mean_of_all(values) == value


@pytest.mark.parametrize(("counts", "value"), [({0: 1, 2: 3}, 1.5), ({}, None)])
def test_the_mean_of_values_that_came_several_times(counts: dict[int, int], value: float | None) -> None:
    assert mean_counted(counts) == value


@pytest.mark.parametrize(("share", "value"), [(0.01, 1), (0.5, 10), (0.95, 19), (0.951, 20), (1.0, 20)])
def test_a_percentile_is_the_nearest_value_from_above(share: float, value: int) -> None:
    assert percentile([*range(20, 0, -1)], share) == value


def test_the_scatter_is_not_moved_by_a_few_values() -> None:
    assert scatter([1, 2, 3, 4, 100]) == 1.4826
    assert scatter([1, 2, 3], around=0) == 2 * 1.4826
