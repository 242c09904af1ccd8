"""Curves of a run of any length."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flagscale_perf.training.analysis.report import TrainingReport
from flagscale_perf.training.analysis.series import trend
from tests.reports import point, small, trend_of

COUNT = 100_000


@pytest.mark.parametrize("place", [1, 31_337, COUNT - 1])
def test_a_single_slow_interval_of_a_hundred_thousand_is_drawn_wherever_it_is(place) -> None:
    usual = point(10)
    slow = {"iteration": 10 * (place + 1), "iteration_p50_ms": 5000.0, "iteration_max_ms": 9000.0}
    found: TrainingReport = small()
    points = [usual] * place + [point(**slow)] + [usual] * (COUNT - 1 - place)
    drawn = trend_of(points, COUNT, [], 0, 0.0)
    lines = {line.label: line for panel in _panels(found, drawn) for line in panel.lines}
    for label, value in (("p50", 5000.0), ("max", 9000.0)):
        assert value in lines[label].y
        assert lines[label].x[lines[label].y.index(value)] == slow["iteration"]
    assert max(len(rows) for rows in drawn.curves.values()) <= 2001


def test_slow_steps_that_are_not_marked_are_counted() -> None:
    found = small()
    some = trend_of([point(10), point(20)], 2, found.trend.slow_steps, 1003, 1.0)
    labels = [line.label for panel in _panels(found, some) for line in panel.lines]
    assert "slow step, the 1 longest of 1,003" in labels
    all_of_them = trend_of([point(10), point(20)], 2, found.trend.slow_steps, 1, 1.0)
    assert "slow step" in [line.label for panel in _panels(found, all_of_them) for line in panel.lines]


def _panels(found, drawn):
    return trend(replace(found, trend=drawn)).panels
