"""What of a training is drawn."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis.blocks import Series
from flagscale_perf.training.analysis import series
from flagscale_perf.training.analysis.report import SlowStep
from flagscale_perf.training.analysis.tables import Memory, RankEntry, Straggler
from flagscale_perf.training.phases import GROUP_WORDS, GROUPS
from tests.reports import bar, few_ranks, point, small, trend_of, unknown


def drawn(found: Series) -> dict[str, tuple[list[float], list[float | None]]]:
    """Label of a line -> its points."""
    return {line.label: (list(line.x), list(line.y)) for panel in found.panels for line in panel.lines}


def with_points(*points, slow=(), intervals=3):
    return replace(small(), trend=trend_of(points, intervals, list(slow), len(slow), 0.0))


def test_the_trend_leaves_the_warm_up_and_what_is_not_known_out() -> None:
    found = series.trend(
        with_points(
            point(1, first_iteration=1, warmup_only=True, iteration_ms=90_000.0),
            point(10, mfu=None, hfu=None, tokens_per_s=None),
            point(20, mfu=None, hfu=None, tokens_per_s=None, tflops_per_gpu=123.0),
        )
    )
    assert drawn(found) == {
        "TFLOPS per GPU": ([10, 20], [400.0, 123.0]),
        "max": ([10, 20], [2200.0, 2200.0]),
        "p95": ([10, 20], [2100.0, 2100.0]),
        "p50": ([10, 20], [1990.0, 1990.0]),
    }
    assert found.span == (1, 20)


def test_the_trend_marks_slow_steps_suspects_and_pauses() -> None:
    points = [point(10, suspect=True, mfu=1.2, checkpoint_ms=3000.0), point(20, eval_ms=2000.0)]
    found = drawn(series.trend(with_points(*points, slow=[SlowStep(17, 34.0, 3000.0, 1990.0)])))
    assert found["suspect"] == ([10], [400.0])
    assert found["TFLOPS per GPU"] == ([10, 20], [None, 400.0])
    assert found["MFU"] == ([10, 20], [None, 0.4])
    assert found["slow step"] == ([17], [3000.0])
    assert found["evaluation"] == ([20], [2.0])
    assert found["checkpoint"] == ([10], [3.0])


def test_phases_are_stacked_group_by_group() -> None:
    groups = dict.fromkeys(GROUPS, 1.0) | {"Forward": 30.0}
    found = series.phases(
        with_points(point(10, groups_ms=groups, bubble_ms=4.0, imbalance_ms=1.0), point(20))
    )
    assert {line.label for line in found.panels[0].lines if line.style == "area"} == set(GROUP_WORDS.values())
    assert drawn(found)["forward"] == ([10], [30.0])
    assert drawn(found)["bubble"] == ([10], [4.0])


def test_without_figures_there_is_nothing_to_draw() -> None:
    assert series.phases(small()).panels == []
    assert series.hardware(small()).panels == []
    assert series.memory(small()).panels == []
    assert series.trend(with_points()).panels == []


def test_memory_is_shown_against_what_the_device_has() -> None:
    found = with_points(point(10, memory_peak_gb=70.0), point(20, memory_peak_gb=72.0))
    assert drawn(series.memory(replace(found, memory=unknown(Memory, device_gb=80.0)))) == {
        "peak": ([10, 20], [70.0, 72.0]),
        "device": ([10, 20], [80.0, 80.0]),
    }


def test_hardware_says_what_capped_the_clock() -> None:
    found = series.hardware(
        with_points(point(10, sm_clock_mhz=1500, throttle="power"), point(20, sm_clock_mhz=1900))
    )
    caps = found.panels[0].lines[1]
    assert (caps.label, caps.x, caps.y, caps.texts) == ("throttled", [10], [1500], ["power"])


def test_ranks_are_rows_and_a_straggler_has_an_outline() -> None:
    slow = Straggler(11, 20, True, [1], "node1", "H200", 0, "forward", 5.0, 20.0, "peers", None, None)
    heat = series.rank_map(few_ranks(), [slow], [point(10), point(20)])
    assert (heat.rows, heat.edges, heat.outlines) == (["0", "1"], [1, 11, 20], [(1, 11, 20)])
    assert (heat.layers[0].label, heat.layers[0].values) == ("Work", [(10.0, 10.0), (15.0, None)])


def test_ranks_that_share_a_row() -> None:
    entries = [RankEntry(0, 3, None, None, None), RankEntry(4, 7, None, None, None)]
    slow = Straggler(11, 20, False, [5, 6], "n", "d", 0, "forward", 5.0, 20.0, "peers", None, None)
    heat = series.rank_map(replace(few_ranks(), entries=entries), [slow], [point(20)])
    assert (heat.rows, heat.outlines) == (["0–3", "4–7"], [(1, 11, 20)])


def test_goodput_is_a_bar() -> None:
    parts = series.goodput(bar(80.0, startup=0.25, productive=0.75, data_stall=None)).parts
    assert [(part.label, part.value, part.colour) for part in parts if part.value] == [
        ("start-up", 20.0, "orange"),
        ("productive", 60.0, "green"),
    ]
    assert [part.label for part in parts if part.value is None] == ["data (rank 0)"]


def test_what_the_device_has_is_no_figure_of_the_run() -> None:
    assert series.memory(replace(small(), memory=unknown(Memory, device_gb=80.0))).panels == []
