"""Series and heat maps as plotly.js draws them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flagscale_perf.analysis.blocks import (
    HeatMap,
    Lane,
    Layer,
    Line,
    Panel,
    Series,
    Stripe,
    Waterfall,
)
from flagscale_perf.report.charts import chart_of

RATE = Panel("Rate", "", [Line("Rate", [1, 2], [123.456789, None], "blue")])
SHARES = Panel("Shares", "share", [Line("a", [1], [0.4], "blue"), Line("b", [1], [0.5], "red", "dashed")])


def series(*panels: Panel) -> Series:
    return Series("trend", "all of it", panels, "iteration", (1, 20))


def test_lines_have_as_many_digits_as_an_eye_sees() -> None:
    chart = chart_of(series(RATE))
    (trace,) = chart["data"]
    assert (trace["name"], trace["x"], trace["y"]) == ("Rate", [1, 2], [123.46, None])
    assert (chart["layout"]["xaxis"]["range"], chart["sync"]) == ([1, 20], True)


def test_a_panel_of_one_line_has_its_title_and_no_legend() -> None:
    chart = chart_of(series(RATE, SHARES))
    assert [trace["showlegend"] for trace in chart["data"]] == [False, True, True]
    assert [each["text"] for each in chart["layout"]["annotations"]] == ["<b>Rate (axis not from 0)</b>"]
    assert chart["layout"]["legend2"]["title"]["text"] == "<b>Shares (axis not from 0)</b>"
    assert chart["layout"]["yaxis2"]["tickformat"] == ".0%"


def test_panels_stand_under_each_other_and_fill_the_height() -> None:
    layout = chart_of(series(RATE, SHARES, RATE))["layout"]
    domains = [layout[name]["domain"] for name in ("yaxis", "yaxis2", "yaxis3")]
    assert domains[0][1] == 1
    assert domains[-1][0] < 1e-9
    assert all(above[0] > below[1] for above, below in zip(domains, domains[1:], strict=False))
    assert layout["xaxis"]["anchor"] == "y3"


def test_areas_are_stacked_and_marks_are_marks() -> None:
    lines = [Line("a", [1], [1.0], "sky", "area"), Line("m", [1], [2.0], "red", "triangle", ["why <b>"])]
    area, marks = chart_of(series(Panel("Step", "ms", lines)))["data"]
    assert area["stackgroup"] == "all"
    assert (marks["mode"], marks["marker"]["symbol"], marks["text"]) == (
        "markers",
        "triangle-down",
        ["why &lt;b&gt;"],
    )


def test_each_row_of_a_heat_map_with_named_columns_has_room_for_its_name() -> None:
    rows = [f"layer {number}" for number in range(30)]
    layers = [Layer("whole", "ms", [[1.0]] * 30)]
    heat = HeatMap("k", "Layers", "layer", rows, "kind", None, [0, 1], layers, columns=["matmul"])
    layout = chart_of(heat)["layout"]
    assert layout["yaxis"]["dtick"] == 1 and layout["yaxis"]["title"]["text"] == "layer"
    assert layout["height"] > 19 * 30


def test_cells_of_a_heat_map_show_their_values_without_exponents() -> None:
    layers = [Layer("work", "ms", [[108.4, 0.0096, None]])]
    heat = HeatMap("k", "Layers", "layer", ["a"], "kind", None, [0, 1], layers, columns=["x", "y", "z"])
    assert chart_of(heat)["data"][0]["text"] == [["108", "0.0096", ""]]


def test_a_heat_map_shows_its_first_layer_and_outlines() -> None:
    layers = [
        Layer("Work", "ms", [[10.0, 10.0], [15.0, None]]),
        Layer("Waiting", "ms", [[1.0, 2.0], [3.0, 4.0]]),
    ]
    heat = HeatMap(
        "ranks", "all", "rank", ["0", "1"], "iteration", (1, 20), [1, 11, 20], layers, [(1, 11, 20)]
    )
    chart = chart_of(heat)
    assert [(trace["name"], trace["visible"]) for trace in chart["data"]] == [
        ("Work", True),
        ("Waiting", False),
    ]
    work = chart["data"][0]
    assert (work["x"], work["y"], work["z"]) == ([1, 11, 20], ["0", "1"], [[10.0, 10.0], [15.0, None]])
    (outline,) = chart["layout"]["shapes"]
    assert (outline["x0"], outline["x1"], outline["y0"], outline["y1"]) == (11, 20, 0.5, 1.5)


@pytest.mark.parametrize(
    ("unit", "title", "pointed_at"),
    [("share", "Busy", "Busy %{z:.1%}"), ("ms", "Busy, ms", "Busy %{z:.1f} ms")],
)
def test_a_share_in_a_heat_map_is_in_percent(unit: str, title: str, pointed_at: str) -> None:
    layers = [Layer("Busy", unit, [[0.5]])]
    (cells,) = chart_of(HeatMap("k", "Processes", "process", ["a"], "second", None, [0, 1], layers))["data"]
    assert title in cells["colorbar"]["title"]["text"]
    assert pointed_at in cells["hovertemplate"]


def test_a_waterfall_has_a_trace_for_each_label_and_bars_behind_each_other() -> None:
    fall = Waterfall(
        "k",
        "A layer",
        "ms",
        [
            Lane("1 one", 0.0, [Stripe("send", 2.0, None, "blue"), Stripe("server", 1.0, None, "green")]),
            Lane("<b>", 3.0, [Stripe("server", 4.0, None, "green")]),
        ],
        8.0,
    )
    chart = chart_of(fall)
    assert [(trace["name"], trace["x"], trace["base"]) for trace in chart["data"]] == [
        ("send", [2.0, 0.0], [0.0, 3.0]),
        ("server", [1.0, 4.0], [2.0, 3.0]),
    ]
    assert chart["data"][0]["y"] == ["1 one", "&lt;b&gt;"] and not chart["sync"]


def test_a_logarithmic_axis_of_several_panels_is_below_the_last_one() -> None:
    layout = chart_of(replace(series(RATE, RATE), is_log=True))["layout"]
    assert (layout["xaxis"]["anchor"], layout["xaxis"]["type"], layout["yaxis2"]["type"]) == (
        "y2",
        "log",
        "log",
    )
