"""What chance does: counts, even distances, rises and differences."""

from __future__ import annotations

import random

import pytest

from flagscale_perf.spine.chance import (
    binomial_tail,
    excess_of,
    median_within,
    period_of,
    rise_of,
)


def test_the_tail_of_a_binomial() -> None:
    assert binomial_tail(0, 5, 0.5) == 1.0
    assert binomial_tail(5, 5, 0.5) == pytest.approx(1 / 32)
    assert binomial_tail(4, 5, 0.5) == pytest.approx(6 / 32)
    assert (binomial_tail(1, 5, 0.0), binomial_tail(5, 5, 1.0)) == (0.0, 1.0)


def test_between_which_values_the_median_lies() -> None:
    """That all of 6 are on one side of it happens once in 32; that 9 or 10 of 10 are, 22 times in 1024."""
    assert median_within([3, 1, 2, 6, 5, 4]) == (1, 6)
    assert median_within(range(10)) == (1, 8)
    assert median_within(range(5)) is None
    assert median_within(range(16)) == (3, 12)
    assert median_within(range(25)) == (7, 17)


def test_even_distances_are_a_period_with_its_chance() -> None:
    found = period_of(list(range(7, 301, 17)), range(1, 301))
    assert found is not None
    assert (found.distance, found.hits[0], found.hits[-1], len(found.hits)) == (17, 7, 296, 18)
    assert found.chance < 1e-6


def test_a_period_keeps_through_a_missing_one_others_between_and_distances_that_differ_by_one() -> None:
    slow = {int(20.4 * number) for number in range(1, 20)} - {204} | {33, 111, 250, 333}
    found = period_of(sorted(slow), range(1, 401))
    assert found is not None and found.distance in (19, 20, 21)
    assert found.chance < 0.001


@pytest.mark.parametrize("count", [2, 3, 5])
def test_too_few_have_none(count: int) -> None:
    assert period_of([10 + 5 * number for number in range(count)], range(1, 301)) is None


def test_two_stretches_are_no_period() -> None:
    assert period_of([100, 101, 102, 105, 106, 107], range(1, 301)) is None


def test_random_steps_have_a_period_in_less_than_one_of_a_thousand_runs() -> None:
    chance = random.Random(1)
    runs = [sorted(chance.sample(range(1, 301), chance.randint(5, 90))) for _ in range(300)]
    chances = [found.chance for slow in runs if (found := period_of(slow, range(1, 301))) is not None]
    assert min(chances, default=1.0) > 0.001


def test_a_rise_is_what_grows_again_and_again() -> None:
    assert rise_of(list(range(16))) == pytest.approx(120 / (16 * 15 * 37 / 18) ** 0.5)
    assert rise_of([1, 2, 1, 2]) == pytest.approx(2 / (4 * 3 * 13 / 18) ** 0.5)
    assert (rise_of([]), rise_of([3.0]), rise_of([2, 2, 2])) == (0.0, 0.0, 0.0)


def test_values_that_are_all_greater_are_far_from_the_others() -> None:
    assert excess_of([5, 6], [1, 2, 3]) == pytest.approx(3 / (2 * 3 * 6 / 12) ** 0.5)
    assert excess_of([1, 2], [1, 2]) == 0.0
    assert (excess_of([], [1.0]), excess_of([1.0], [])) == (0.0, 0.0)
