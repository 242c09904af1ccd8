"""What a page's charts draw."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis.report import SlowStep, Trend
from flagscale_perf.report import charts
from flagscale_perf.training.analysis.tables import Memory, RankEntry, Straggler
from flagscale_perf.training.phases import GROUPS
from tests.reports import few_ranks, point, small, unknown


def drawn(chart: charts.Chart) -> dict[str, tuple[list[int], list[float | None]]]:
    """Name of a trace -> its points."""
    return {trace["name"]: (trace["x"], trace["y"]) for trace in chart["data"]}


def test_the_trend_leaves_the_warm_up_and_what_is_not_known_out() -> None:
    points = [
        point(1, first_iteration=1, is_warmup=True, iteration_ms=90_000.0),
        point(10, mfu=None, hfu=None, tokens_per_s=None),
        point(20, mfu=None, hfu=None, tokens_per_s=None, tflops_per_gpu=123.456789),
    ]
    chart = charts.trend(replace(small(), trend=Trend(points, 3, [], 0, 0.0)))
    assert drawn(chart) == {
        "TFLOPS per GPU": ([10, 20], [400.0, 123.46]),
        "max": ([10, 20], [2200.0, 2200.0]),
        "p95": ([10, 20], [2100.0, 2100.0]),
        "p50": ([10, 20], [1990.0, 1990.0]),
    }
    assert [trace["yaxis"] for trace in chart["data"]] == ["y", "y2", "y2", "y2"]
    assert chart["layout"]["xaxis"]["range"] == [1, 20]
    assert chart["layout"]["xaxis"]["anchor"] == "y2"


def test_the_trend_marks_slow_steps_suspects_and_pauses() -> None:
    points = [point(10, is_suspect=True, mfu=1.2, checkpoint_s=3.0), point(20, eval_s=2.0)]
    chart = charts.trend(
        replace(small(), trend=Trend(points, 2, [SlowStep(17, 34.0, 3000.0, 1990.0)], 1, 1.0))
    )
    found = drawn(chart)
    assert found["suspect"] == ([10], [400.0])
    assert found["TFLOPS per GPU"] == ([10, 20], [None, 400.0])
    assert found["MFU"] == ([10, 20], [None, 0.4])
    assert found["slow step"] == ([17], [3000.0])
    assert found["evaluation"] == ([20], [2.0])
    assert found["checkpoint"] == ([10], [3.0])
    shares = {trace["name"]: trace["yaxis"] for trace in chart["data"]}
    assert chart["layout"][shares["MFU"].replace("y", "yaxis")]["tickformat"] == ".0%"


def test_a_diagram_of_one_line_has_its_title_and_no_legend() -> None:
    chart = charts.trend(small())
    legends = {trace["name"]: trace["showlegend"] for trace in chart["data"]}
    assert (legends["TFLOPS per GPU"], legends["MFU"]) == (False, True)
    assert [each["text"] for each in chart["layout"]["annotations"]] == [
        "<b>TFLOPS per GPU</b>",
        "<b>Tokens per second</b>",
    ]
    assert chart["layout"]["legend2"]["title"]["text"] == "<b>Share of the peak</b>"


def test_diagrams_stand_under_each_other_and_fill_the_height() -> None:
    layout = charts.trend(small())["layout"]
    domains = [layout[name]["domain"] for name in ("yaxis", "yaxis2", "yaxis3", "yaxis4")]
    assert domains[0][1] == 1
    assert domains[-1][0] < 1e-9
    assert all(above[0] > below[1] for above, below in zip(domains, domains[1:], strict=False))


def test_phases_are_stacked_group_by_group() -> None:
    groups = dict.fromkeys(GROUPS, 1.0) | {"Forward": 30.0}
    points = [point(10, groups_ms=groups, bubble_ms=4.0, imbalance_ms=1.0), point(20)]
    chart = charts.phases(replace(small(), trend=Trend(points, 2, [], 0, 0.0)))
    areas = [trace["name"] for trace in chart["data"] if trace.get("stackgroup")]
    assert set(areas) == set(GROUPS)
    assert drawn(chart)["Forward"] == ([10], [30.0])
    assert drawn(chart)["bubble"] == ([10], [4.0])


def test_without_figures_there_is_no_chart() -> None:
    assert charts.phases(small()) == {}
    assert charts.hardware([point(10)]) == {}
    assert charts.memory([point(10)], unknown(Memory)) == {}
    assert charts.trend(replace(small(), trend=Trend([], 0, [], 0, 0.0))) == {}


def test_memory_is_shown_against_what_the_device_has() -> None:
    points = [point(10, memory_peak_gb=70.0), point(20, memory_peak_gb=72.0)]
    assert drawn(charts.memory(points, unknown(Memory, device_gb=80.0))) == {
        "peak": ([10, 20], [70.0, 72.0]),
        "device": ([10, 20], [80.0, 80.0]),
    }


def test_hardware_says_what_capped_the_clock() -> None:
    chart = charts.hardware(
        [point(10, sm_clock_mhz=1500, throttle="power <b>"), point(20, sm_clock_mhz=1900)]
    )
    (marks,) = (trace for trace in chart["data"] if trace["name"] == "throttled")
    assert (marks["x"], marks["y"], marks["text"]) == ([10], [1500.0], ["power &lt;b&gt;"])


def test_ranks_are_rows_and_a_straggler_has_an_outline() -> None:
    slow = Straggler(11, 20, True, [1], "node1", "H200", 0, "forward", 5.0, 20.0, 0.1, "peers", None)
    chart = charts.ranks(few_ranks(), [slow], [point(10), point(20)])
    work = chart["data"][0]
    assert (work["name"], work["x"], work["y"], work["z"]) == (
        "Work",
        [1, 11, 20],
        ["0", "1"],
        [[10.0, 10.0], [15.0, None]],
    )
    assert [trace["visible"] for trace in chart["data"]] == [True, False, False, False, False]
    (outline,) = chart["layout"]["shapes"]
    assert (outline["x0"], outline["x1"], outline["y0"], outline["y1"]) == (11, 20, 0.5, 1.5)


def test_ranks_that_share_a_row() -> None:
    found = replace(
        few_ranks(), entries=[RankEntry(0, 3, None, None, None), RankEntry(4, 7, None, None, None)]
    )
    slow = Straggler(11, 20, False, [5, 6], "n", "d", 0, "forward", 5.0, 20.0, 0.1, "peers", None)
    chart = charts.ranks(found, [slow], [point(20)])
    assert chart["data"][0]["y"] == ["0–3", "4–7"]
    assert [shape["y0"] for shape in chart["layout"]["shapes"]] == [0.5]
