"""How wide an interval is, and how often it holds."""

from __future__ import annotations

import random

import pytest

from flagscale_perf.analysis.replays import Doubt
from flagscale_perf.spine.averages import median
from flagscale_perf.whatif.intervals import (
    EXPECTED,
    expected,
    of_gain,
    parts_of,
    recorded,
    sampling,
    together,
)

Scores = list[tuple[float, bool]]


def test_of_steps_that_are_alike_only_the_drift_and_the_record_are_left() -> None:
    parts, plain_ns = parts_of("A", [100.0] * 8, [90.0] * 8, [3.0] * 8, Doubt(0.01))
    assert (parts["replay"], parts["sampling"]) == (0, 0)
    assert parts["drift"] == pytest.approx(1.96 * 2**0.5 * 0.9, rel=0.001)
    assert parts["record"] == pytest.approx(EXPECTED["A"][0] * 10)
    assert together(parts) == pytest.approx(plain_ns)
    assert plain_ns == pytest.approx((parts["drift"] ** 2 + parts["record"] ** 2) ** 0.5)


def test_the_median_of_other_steps_is_within_what_sampling_says() -> None:
    """Also of few steps; 95 of 100 times for each of two such medians, that one of them is off is rarer."""
    for count in (5, 20):
        chance, held = random.Random(count), 0
        for _ in range(200):
            steps = [chance.gauss(100, 3) for _ in range(count)]
            held += abs(median(steps) - 100) <= sampling(steps)
        assert held >= 180


def whole(base: float, expected: float, scores: Scores) -> float:
    parts, plain_ns = recorded("A", {"base": base}, expected, Doubt(scores={"A": scores}))
    assert plain_ns == pytest.approx((base**2 + expected**2) ** 0.5)
    return together(parts)


def test_a_kind_whose_intervals_did_not_hold_gets_wider_ones() -> None:
    assert whole(4.0, 3.0, []) == pytest.approx(5)
    assert whole(4.0, 3.0, [(0.9, True)] * 18 + [(3.0, False)]) == pytest.approx(15)
    other = Doubt(scores={"A": [(9.0, False)] * 30})
    assert recorded("B", {"base": 4.0}, 3.0, other)[0]["record"] == pytest.approx(3.0)


def test_a_kind_whose_intervals_were_too_wide_gets_narrower_ones() -> None:
    """All other parts are in proportion; what one run gains is no narrower, as drift is not in it."""
    scores = [(0.5, True)] * 38 + [(3.0, False)]
    assert whole(4.0, 3.0, scores) == pytest.approx(2.5), "one of 39 may be beyond"
    doubt = Doubt(scores={"A": scores})
    parts, _ = recorded("A", {"sampling": 4.0, "drift": 4.0}, 0.0, doubt)
    assert parts == pytest.approx({"sampling": 2.0, "drift": 2.0, "record": 0.0})
    assert of_gain("A", 4.0, 3.0 / EXPECTED["A"][0], doubt) == pytest.approx(5)
    assert of_gain("A", 4.0, 3.0 / EXPECTED["A"][0], Doubt(scores={"A": [(2.0, False)]})) == pytest.approx(10)


def test_few_outcomes_do_not_take_away_what_is_expected_of_a_kind() -> None:
    assert whole(4.0, 3.0, [(0.1, True)] * 5) == pytest.approx(5)
    of_change, of_step = EXPECTED["B"]
    assert expected("B", 250.0, 200.0) == pytest.approx(50 * of_change + 200 * of_step)


def test_intervals_hold_ninety_five_of_a_hundred_whatever_those_without_a_record_were_worth() -> None:
    """Here a third of what they should be."""
    chance, scores, held, count = random.Random(5), list[tuple[float, bool]](), 0, 400
    for _ in range(count):
        off = abs(chance.gauss(0, 1.5))
        is_hit = off <= whole(0.8, 0.6, scores)
        held += is_hit
        scores.append((off, is_hit))
    assert held / count >= 0.92
    assert held / count <= 0.98, "and are no wider than that takes"
