"""What a chart shows, as rows."""

from __future__ import annotations

from flagscale_perf.analysis.blocks import (
    Boxes,
    BoxRow,
    HeatMap,
    Lane,
    Layer,
    Line,
    Note,
    Panel,
    Series,
    StackedBar,
    Stripe,
    Waterfall,
)
from flagscale_perf.report.chart_rows import rows_of


def test_a_heat_map_has_its_columns_names() -> None:
    heat = HeatMap(
        "heat",
        "",
        "layer",
        ["0", "1"],
        "kind",
        None,
        [0, 1, 2],
        [Layer("all", "ms", [[1, 2], [3, None]])],
        columns=["a", "b"],
    )
    made = rows_of(heat)
    assert made is not None
    assert (made[0], list(made[1])) == (
        "heat",
        [("shown", "layer", "a", "b"), ("all, ms", "0", 1, 2), ("all, ms", "1", 3, None)],
    )


def test_parts_of_a_lane_follow_one_another() -> None:
    fall = Waterfall(
        "fall", "", "ms", [Lane("x", 1, [Stripe("a", 2, None, ""), Stripe("b", 3, None, "")])], 9
    )
    made = rows_of(fall)
    assert made is not None
    assert list(made[1]) == [
        ("lane", "part", "start", "value, ms"),
        ("x", "a", 1, 2),
        ("x", "b", 3, 3),
    ]


def test_lines_bars_and_boxes() -> None:
    series = Series("s", "", [Panel("p", "GB", [Line("l", [1], [2], "", texts=["t"])])], "x", None)
    bar = StackedBar("rank 0, a step", "ms", [Stripe("a", 1, 0.5, "")])
    boxes = Boxes("b", "", "ms", [BoxRow("r", 1, 2, 3, 4, 5, "")])
    made = [rows_of(block) for block in (series, bar, boxes)]
    assert [(one[0], list(one[1])[1]) for one in made if one] == [
        ("s", ("p", "GB", "l", 1, 2, "t")),
        ("rank_0_a_step", ("a", 1, 0.5)),
        ("b", ("r", 1, 2, 3, 4, 5)),
    ]
    assert rows_of(Note("words")) is None
