"""One rule for a capped clock."""

from __future__ import annotations

import pytest

from flagscale_perf.training.clocks import capped_by, caps_in, is_lower


@pytest.mark.parametrize(
    ("clock_mhz", "usual_mhz", "lower"),
    [(1400, 1980, True), (970, 1000, False), (969, 1000, True), (None, 1980, None), (1400, None, None)],
)
def test_a_clock_is_lower_from_three_percent_on(clock_mhz, usual_mhz, lower) -> None:
    assert is_lower(clock_mhz, usual_mhz) is lower


@pytest.mark.parametrize(
    ("throttle", "clock_mhz", "usual_mhz", "caps"),
    [
        ("temperature, power", 1400, 1980, ["power", "temperature"]),
        ("idle, application clocks", 1400, 1980, []),
        ("power", 1975, 1980, []),
        ("power", None, None, ["power"]),
        ("power", None, 1980, ["power"]),
        (None, 1400, 1980, []),
    ],
)
def test_a_cap_counts_unless_the_clock_is_as_usual(throttle, clock_mhz, usual_mhz, caps) -> None:
    assert caps_in(throttle, clock_mhz, usual_mhz) == caps


def test_caps_in_words() -> None:
    assert capped_by(["power", "temperature"]) == "clock capped by power and temperature"
