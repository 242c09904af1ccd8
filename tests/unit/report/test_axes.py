"""Where axes begin and end."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.blocks import Lane, Line, Panel, Stripe, Waterfall
from flagscale_perf.report.axes import Bars, bars_of, title_of, value_range


def panel(*values: float | None, unit: str = "ms", begins_at_zero: bool = False) -> Panel:
    return Panel("Time", unit, [Line("a", list(range(len(values))), values, "blue")], begins_at_zero)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (panel(100, None, 110), (99.4, 110.6)),  # 6 % of the height more at both ends
        (panel(100, 110, begins_at_zero=True), (0, 116.6)),
        (panel(50, 100), (0, 106)),  # down to half of the highest: from 0
        (panel(51, 101), (48, 104)),
        (panel(-10, 90), (-16, 96)),
        (panel(100, 100), (95, 105)),
        (panel(0, 0), (0, 1)),
        (panel(None), None),
    ],
)
def test_values_fill_the_height_or_begin_at_zero(shown: Panel, expected: tuple[float, float] | None) -> None:
    assert value_range(shown) == (None if expected is None else pytest.approx(expected))


def test_stacked_areas_begin_at_zero_and_end_above_the_highest_stack() -> None:
    areas = [
        Line(name, [1, 2], values, "sky", "area") for name, values in (("a", [70, 80]), ("b", [20, None]))
    ]
    assert value_range(Panel("Step", "ms", areas)) == pytest.approx((0, 95.4))


def test_the_unit_is_in_the_title_unless_the_axis_has_it() -> None:
    assert [title_of(panel(0, 1, unit=unit)) for unit in ("ms", "share", "")] == ["Time, ms", "Time", "Time"]


def test_an_axis_that_does_not_begin_at_0_says_so() -> None:
    assert title_of(panel(9, 10, unit="ms")) == "Time, ms (axis not from 0)"
    assert title_of(panel(9, 10, unit="ms"), is_log=True) == title_of(panel(4, 10, unit="ms")) == "Time, ms"


def test_each_part_of_a_waterfall_begins_where_the_one_before_it_in_its_lane_ends() -> None:
    wait, work, send = (Stripe(name, 2.0, None, "blue") for name in ("wait", "work", "send"))
    unknown = Stripe("rest", None, None, "grey")
    fall = Waterfall(
        "k", "Step", "ms", [Lane("a", 0.0, [work, unknown]), Lane("b", 1.0, [wait, send, work])], 9.0
    )
    assert bars_of(fall) == [
        Bars("work", "blue", [0.0, 5.0], [2.0, 2.0]),
        Bars("wait", "blue", [0.0, 1.0], [0.0, 2.0]),
        Bars("send", "blue", [0.0, 3.0], [0.0, 2.0]),
    ]
