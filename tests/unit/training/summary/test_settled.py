"""Rates over the settled steps: the same while the start may change, when it is final, and in a report."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from flagscale_perf.training.settled import HORIZON
from flagscale_perf.training.summary.summary import Summary
from flagscale_perf.training.summary.totals import RunTotals
from tests.fakes import MS, make_header, make_interval, make_phases, make_step


def summary_of(slow: int, usual: int) -> Summary:
    """A first step of 400 ms, so many of 300 ms that load data for 200 of them, so many of 100 ms."""
    totals = RunTotals(make_header())
    start_ns = 0
    for number in range(1, 2 + slow + usual):
        is_slow = number <= 1 + slow
        iteration_ns = (400 if number == 1 else 300 if is_slow else 100) * MS
        fields = {"start_ns": start_ns, "iteration_ns": iteration_ns, "warmup": int(number == 1)}
        totals.add(make_phases(number, data_loading_ns=(202 if is_slow else 2) * MS))
        totals.add(make_step(number, **fields))
        start_ns += iteration_ns
    return totals.result()


@pytest.mark.parametrize("usual", [91, HORIZON, 3 * HORIZON])
def test_a_slow_start_is_in_no_settled_figure(usual: int) -> None:
    summary = summary_of(9, usual)
    settled, all_ = summary.settled, summary.final_statistics
    assert (settled.first_iteration, settled.reason, settled.start_steps) == (11, None, 9)
    assert (settled.start_s, settled.excess_s, settled.usual_ms) == pytest.approx((2.7, 1.8, 100.0))
    assert (settled.avg_iteration_ms, settled.p50_iteration_ms, settled.p95_iteration_ms) == (100, 100, 100)
    # 1024 tokens, 8 samples, 4 TFLOP on 8 devices of 100 TFLOP/s, in 100 ms each
    assert (settled.avg_throughput_tokens, settled.avg_throughput_samples) == pytest.approx((10240, 80))
    assert (settled.avg_tflops_per_gpu, settled.avg_mfu, settled.avg_hfu) == pytest.approx((5, 0.05, 0.0625))
    assert all_.avg_iteration_ms == pytest.approx((2700 + 100 * usual) / (9 + usual))
    assert all_.max_iteration_ms == 300


def test_phases_are_those_of_the_settled_steps() -> None:
    summary = summary_of(9, 91)
    assert summary.phases.steps == 91
    assert summary.phases.total_s["data_loading"] == pytest.approx(91 * 0.002)


def test_a_run_without_a_slow_start_has_the_same_figures_twice() -> None:
    summary = summary_of(0, 50)
    settled, all_ = asdict(summary.settled), asdict(summary.final_statistics)
    assert (settled["first_iteration"], settled["start_steps"], settled["excess_s"]) == (2, 0, 0.0)
    same = [name for name in settled if name in all_]
    assert len(same) == 8
    assert [settled[name] for name in same] == [pytest.approx(all_[name]) for name in same]


def test_a_run_that_has_not_settled_says_why() -> None:
    settled = summary_of(9, 9).settled
    assert settled.reason == "18 steps after the first are too few to tell, 20 are needed"
    known = {name: value for name, value in asdict(settled).items() if value is not None}
    assert known == {"reason": settled.reason}
    assert summary_of(30, 20).settled.reason == "the slow start takes more than half of the first 50 steps"


def test_where_the_peak_is_doubted_there_is_no_settled_mfu() -> None:
    totals = RunTotals(make_header())
    for number in range(1, 41):
        totals.add(make_step(number, model_flops=10**15))
    totals.add(make_interval(40, model_flops=10**15 * 40, mfu=1.25))
    summary = totals.result()
    assert (summary.settled.avg_mfu, summary.settled.avg_hfu) == (None, None)
