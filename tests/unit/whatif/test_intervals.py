"""How wide an interval is, and how often it holds."""

from __future__ import annotations

import random

import pytest

from flagscale_perf.analysis.replays import Doubt
from flagscale_perf.spine.averages import median
from flagscale_perf.whatif.intervals import EXPECTED, parts_of, record, sampling, together


def test_of_steps_that_are_alike_only_the_drift_and_the_record_are_left() -> None:
    parts = parts_of("A", [100.0] * 8, [90.0] * 8, [3.0] * 8, Doubt(0.01))
    assert (parts["replay"], parts["sampling"]) == (0, 0)
    assert parts["drift"] == pytest.approx(1.96 * 2**0.5 * 0.9, rel=0.001)
    assert parts["record"] == pytest.approx(EXPECTED["A"][0] * 10)
    assert together(parts) == pytest.approx((parts["drift"] ** 2 + parts["record"] ** 2) ** 0.5)


def test_the_median_of_other_steps_is_within_what_sampling_says() -> None:
    """Also of few steps; 95 of 100 times for each of two such medians, that one of them is off is rarer."""
    for count in (5, 20):
        chance, held = random.Random(count), 0
        for _ in range(200):
            steps = [chance.gauss(100, 3) for _ in range(count)]
            held += abs(median(steps) - 100) <= sampling(steps)
        assert held >= 180


def test_a_kind_whose_intervals_did_not_hold_gets_wider_ones() -> None:
    base, sizes = 10.0, (0.0, 0.0)
    assert record("A", base, sizes, Doubt(scores={"A": [(0.9, True)] * 30})) == 0
    missed = Doubt(scores={"A": [(0.9, True)] * 18 + [(3.0, False)]})
    assert together({"base": base, "record": record("A", base, sizes, missed)}) == pytest.approx(30)
    assert record("B", base, sizes, missed) == 0
    often = Doubt(scores={"A": [(0.5, True)] * 38 + [(3.0, False)]})
    assert record("A", base, sizes, often) == 0, "one of 39 may be beyond"


def test_few_outcomes_do_not_take_away_what_is_expected_of_a_kind() -> None:
    held = Doubt(scores={"B": [(0.1, True)] * 5})
    of_change, of_step = EXPECTED["B"]
    assert record("B", 1.0, (50.0, 200.0), held) == pytest.approx(50 * of_change + 200 * of_step)


def test_widened_intervals_hold_ninety_five_of_a_hundred() -> None:
    """Whatever the intervals without them were worth: here a third of what they should be."""
    chance, scores, held, count = random.Random(5), list[tuple[float, bool]](), 0, 400
    for _ in range(count):
        half = together({"base": 1.0, "record": record("A", 1.0, (0.0, 0.0), Doubt(scores={"A": scores}))})
        off = abs(chance.gauss(0, 1.5))
        held += off <= half
        scores.append((off, off <= half))
    assert held / count >= 0.92
