"""What a comparison says of its two sides."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from flagscale_perf.analysis.compare import bootstrap, sides
from flagscale_perf.analysis.compare.compare import CompareOptions, Difference, Figure
from flagscale_perf.analysis.compare.judge import Judge
from flagscale_perf.spine.errors import PerfError

TIMES = [[10.0] * 50, [20.0] * 50]


class Run(NamedTuple):
    path: Path
    title: str
    skipped_lines: int = 0


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    made = [Run(tmp_path / name, name) for name in ("a", "b")]
    for run in made:
        run.path.touch()
    return made


def test_mean_and_95th_percentile() -> None:
    assert sides.typical([3.0, 1.0, 2.0]) == {"mean": 2.0, "p95": 3.0}


def test_each_figure_of_both_sides_with_its_change() -> None:
    assert sides.figures({"mean": 2.0, "p95": None}, {"mean": 3.0, "p95": 1.0}) == [
        Figure("mean", 2.0, 3.0, 0.5),
        Figure("p95", None, 1.0, None),
    ]


def test_what_is_left_out() -> None:
    assert sides.left_out({"warm-up": 2}, 0) == {"warm-up": 2}
    assert sides.left_out({"warm-up": 2}, 3) == {"warm-up": 2, "not in every run": 3}


def test_a_run_on_both_sides_is_named_and_one_twice_on_a_side_is_refused(runs: list[Run]) -> None:
    one, other = runs
    assert sides.on_both_sides([one], [other]) is None
    assert sides.on_both_sides([one], [other, one]) == "a"
    with pytest.raises(PerfError, match="/b' is named twice"):
        sides.on_both_sides([one], [other, other])


def test_where_the_noise_is_known_from() -> None:
    judge = Judge(TIMES, 1, 0.01, bootstrap.mean)
    assert sides.noise_source(judge, CompareOptions()) == "assumed"
    assert sides.noise_source(judge, CompareOptions(noise=0.01)) == "--noise"


def test_runs_are_drawn_over_each_other() -> None:
    (series,) = sides.trend(TIMES, 1, "Time", "call").blocks
    lines = series.panels[0].lines
    assert [(line.label, line.y, line.colour) for line in lines] == [
        ("BASE 1", TIMES[0], "blue"),
        ("NEW 1", TIMES[1], "orange"),
    ]


def test_the_facts_that_differ_in_their_order() -> None:
    assert sides.differences({"cores": 2, "host": "a"}, {"host": "a", "cores": 4, "load": 1.0}) == [
        Difference("cores", 2, 4),
        Difference("load", None, 1.0),
    ]
