"""What bounds say of two clocks, on lines whose extremes can be worked out by hand."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.relation import MAX_DRIFT_PPM, relation_of
from flagscale_perf.spine.clock import NS_PER_S

US = 1000
TIMES_S = range(101)


def bounds(
    offset_ns: int, drift_ppm: float, low_ns: int, high_ns: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """A bound of each side every second, so far below and above the truth."""
    truth = [(s * NS_PER_S, offset_ns + round(drift_ppm * US * s)) for s in TIMES_S]
    return [(at, ns - low_ns) for at, ns in truth], [(at, ns + high_ns) for at, ns in truth]


@pytest.mark.parametrize("drift_ppm", [0.0, 50.0, -120.0])
def test_an_offset_lies_in_the_middle_of_its_bounds(drift_ppm: float) -> None:
    found = relation_of(*bounds(3 * NS_PER_S, drift_ppm, 20 * US, 60 * US))
    assert found is not None
    assert (found.first_ns, found.last_ns, found.messages) == (0, 100 * NS_PER_S, 202)
    for s in (0, 50, 100):
        truth_ns = 3 * NS_PER_S + drift_ppm * US * s
        assert found.offset_ns(s * NS_PER_S) == pytest.approx(truth_ns + 20 * US, abs=10 * US)
        assert found.uncertainty_ns(s * NS_PER_S) == pytest.approx(40 * US, abs=10 * US)
    low, high = found.drift_ppm
    assert low <= drift_ppm <= high <= low + 2


def test_away_from_messages_it_is_less_certain() -> None:
    found = relation_of(*bounds(0, 50.0, 20 * US, 20 * US))
    assert found is not None
    within = [found.uncertainty_ns(s * NS_PER_S) for s in (100, 200, 1000, 10_000)]
    assert within == sorted(within)
    assert abs(found.offset_ns(10_000 * NS_PER_S) - 50 * US * 10_000) <= within[-1] < NS_PER_S


def test_distances_stay_where_one_offset_fits_everywhere() -> None:
    found = relation_of(*bounds(0, 0.1, 20 * US, 20 * US))
    assert found is not None and found.constant_ns is not None
    assert {found.offset_ns(s * NS_PER_S) for s in TIMES_S} == {found.constant_ns}
    drifting = relation_of(*bounds(0, 10.0, 20 * US, 20 * US))
    assert drifting is not None and drifting.constant_ns is None


def test_bounds_of_one_side_or_that_no_clock_fits_say_nothing() -> None:
    lows, highs = bounds(0, 0.0, 20 * US, 20 * US)
    assert relation_of(lows, []) is None
    assert relation_of([], highs) is None
    assert relation_of([*lows, (50 * NS_PER_S, NS_PER_S)], highs) is None
    assert relation_of(*bounds(0, 3 * MAX_DRIFT_PPM, 20 * US, 20 * US)) is None


def test_one_message_each_way_is_enough() -> None:
    found = relation_of([(0, -5 * US)], [(0, 15 * US)])
    assert found is not None
    assert (found.offset_ns(0), found.uncertainty_ns(0)) == (5 * US, pytest.approx(10 * US, abs=4 * US))
