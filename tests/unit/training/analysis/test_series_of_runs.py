"""Several runs in one chart."""

from __future__ import annotations

from typing import Any

from flagscale_perf.training.analysis.series import Curve, curves_of, phase_parts, trends_of_runs


def point(iteration: int, **figures: Any) -> dict[str, Any]:
    return {
        "iteration": iteration,
        "iteration_ms": 100.0,
        "tokens_per_s": 10.0,
        "warmup_only": False,
    } | figures


def test_each_figure_that_a_run_has_is_a_panel() -> None:
    base = Curve("BASE", curves_of([point(1, warmup_only=True), point(10), point(20)]), "blue")
    new = Curve("NEW", curves_of([point(10, mfu=0.4), point(30, mfu=1.4, suspect=True)]), "orange", "dashed")
    series = trends_of_runs([base, new])
    assert [panel.title for panel in series.panels] == [
        "Iteration time",
        "Tokens per second",
        "MFU",
    ]
    assert [(line.label, line.x, line.colour, line.style) for line in series.panels[0].lines] == [
        ("BASE", [10, 20], "blue", "line"),
        ("NEW", [10, 30], "orange", "dashed"),
    ]
    assert [(line.label, line.y) for line in series.panels[2].lines] == [("NEW", [0.4, None])]
    assert series.span == (10, 30)


def test_lines_that_come_and_go_leave_the_axis_to_the_page() -> None:
    assert trends_of_runs([Curve("a", curves_of([point(10), point(20)]), "blue", group="run0")]).span is None


def test_of_many_points_the_lowest_and_the_highest_of_each_stretch_and_the_last_one_stay() -> None:
    slow = {401: 900.0, 777: 20.0}
    points = [point(number, iteration_ms=slow.get(number, 100.0)) for number in range(1, 1001)]
    (line, *_) = trends_of_runs([Curve("a", curves_of(points), "blue")], most=100).panels[0].lines
    drawn = dict(zip(line.x, line.y, strict=True))
    assert (drawn[401], drawn[777], line.x[0], line.x[-1]) == (900.0, 20.0, 1, 1000)
    assert len(line.x) <= 101


def test_phases_are_added_up_by_group() -> None:
    parts = phase_parts({"forward": 30, "optimizer": 5, "optimizer_inner_step": 15})
    assert [part[:2] for part in parts] == [("forward", 30), ("whole optimizer", 20)]
