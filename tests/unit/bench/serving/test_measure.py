"""Points of a result."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.job import open_session
from flagscale_perf.bench.analysis.source import read_bench
from flagscale_perf.bench.recording import Clock
from flagscale_perf.bench.serving.cases import Case, arms_of, turns
from flagscale_perf.bench.serving.measure import Result, keep, points_of
from tests.bench_runs import book_in


def test_a_result_is_a_point_of_each_figure(tmp_path: Path) -> None:
    result = Result([0.5], [0.25], 1, [1.0, 2.0], 2.0, prompt_tokens=8, output_tokens=6)
    with book_in(tmp_path) as book, book.part("latency", 6, {}) as part:
        keep(part, {"arm": "single"}, result, Clock(1, 2))
    found = read_bench(open_session(book.path)).parts["latency"]
    assert {point.figure: (point.unit, point.samples) for point in found.points} == {
        "ttft": ("s", [0.5]),
        "tpot": ("s", [0.25]),
        "latency": ("s", [1.0, 2.0]),
        "duration": ("s", [2.0]),
        "throughput": ("tokens/s", [3.0]),
        "tokens": ("tokens/s", [7.0]),
    }
    assert [(one.figure, one.value) for one in found.figures] == [("in_few_pieces", 1.0)]


def test_one_token_makes_a_point_less() -> None:
    arms = arms_of([], [])
    assert points_of(turns(arms, [Case(1, 8, 2)], 3)) == 3 * 6
    assert points_of(turns(arms, [Case(1, 8, 1)], 3)) == 3 * 5
