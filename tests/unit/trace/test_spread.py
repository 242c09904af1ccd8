"""Sums and percentiles of figures that may stand for others."""

from __future__ import annotations

import math
import random

from flagscale_perf.trace.spread import Distinct, Spread


def _of(*values: float) -> Spread:
    spread = Spread()
    spread.extend(values)
    return spread


def test_values_that_are_apart_are_exact() -> None:
    spread = _of(4, 1, 3, 2)
    assert (spread.count, spread.total, spread.mean, spread.high) == (4, 10, 2.5, 4)
    assert [spread.percentile(share) for share in (0.25, 0.5, 0.51, 0.95, 1)] == [1, 2, 3, 4, 4]
    assert spread.variation == math.sqrt(1.25) / 2.5
    assert (spread.mean_within(), spread.weight_within()) == (0, 0)


def test_nothing_is_not_zero() -> None:
    empty = Spread()
    assert (empty.mean, empty.percentile(0.5), empty.variation) == (None, None, None)
    assert empty.as_dict()["max"] is None


def test_near_ones_count_as_their_mean_so_that_percentiles_are_right_to_a_percent() -> None:
    assert _of(1004, 1006).percentile(0.5) == 1005
    spread = _of(*range(10_000))
    assert spread.total == sum(range(10_000))
    for share in (0.01, 0.5, 0.95, 0.99):
        assert math.isclose(spread.percentile(share) or 0, share * 10_000, rel_tol=0.01)


def test_weights_count_and_widen_the_interval() -> None:
    spread = Spread()
    for value in (10.0, 20.0):
        spread.add(value, 4)
    spread.add(1000.0)  # kept whatever the sampling says: it stands for itself
    assert (spread.count, spread.weight, spread.total) == (3, 9, 1120)
    assert spread.percentile(0.5) == 20
    assert spread.weight_within() == 1.96 * math.sqrt(24)
    mean = 1120 / 9
    within = 1.96 * math.sqrt(12 * (10 - mean) ** 2 + 12 * (20 - mean) ** 2) / 9
    assert math.isclose(spread.mean_within(), within)


def test_the_interval_holds_the_whole_as_often_as_it_says() -> None:
    random.seed(1)
    values = [random.lognormvariate(0, 0.5) for _ in range(2000)]
    mean, held = sum(values) / len(values), 0
    for _ in range(200):
        spread = Spread()
        for value in values:
            if random.random() < 0.1:
                spread.add(value, 10)
        held += abs((spread.mean or 0) - mean) <= spread.mean_within()
    assert 180 <= held <= 200


def test_merging_is_seeing_both() -> None:
    for count in (10, 3000):
        one, two, both = _of(*range(count)), _of(5, 7), _of(*range(count), 5, 7)
        two.add(3.0, 2)
        both.add(3.0, 2)
        one.merge(two)
        assert one.as_dict() == both.as_dict()


def test_different_ones_are_counted_and_beyond_many_estimated() -> None:
    few, many, source = Distinct(), Distinct(), random.Random(0)
    for number in range(1000):
        few.add(number % 100)
    assert (few.count, few.is_exact) == (100, True)
    for _ in range(5 * Distinct.KEPT):
        many.add(source.getrandbits(64))
    assert not many.is_exact
    assert math.isclose(many.count, 5 * Distinct.KEPT, rel_tol=0.02)


def test_what_is_up_to_a_bound_is_counted_with_its_weight() -> None:
    spread = Spread()
    for value in (1, 2, 4, 8):
        spread.add(value, 25)
    assert spread.below([2, 1000]) == [50, 100]
