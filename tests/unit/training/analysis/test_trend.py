"""Curves of a run of any length."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from flagscale_perf.spine.figures import Rows
from flagscale_perf.training.analysis.series import trend
from flagscale_perf.training.analysis.trend import ORDERS, CurveTotals
from flagscale_perf.training.columns import Intervals
from flagscale_perf.training.figures import TABLE
from tests.fakes import MS, SECOND, make_facts, make_header, make_interval
from tests.reports import point, small, trend_of

COUNT = 100_000
FIGURES = Rows(TABLE, make_header(facts=make_facts(world_size=8, peak_flop_per_s=1e15)))
UNKNOWN = (
    *("model_flops", "hardware_flops", "iteration_p50_ns", "iteration_p95_ns", "iteration_max_ns"),
    *("memory_bytes", "memory_reserved_bytes", "memory_peak_bytes", "energy_mj", "energy_ns", "power_mw"),
    *("sm_clock_mhz", "temperature_c", "bubble_ns", "imbalance_ns"),
)
READ = (*UNKNOWN, "iteration_ns", "steps", "tokens", "eval_ns", "checkpoint_ns")


@pytest.mark.parametrize("place", [1, 31_337, COUNT - 1])
def test_a_single_slow_interval_of_a_hundred_thousand_is_drawn_wherever_it_is(place: int) -> None:
    totals = CurveTotals(FIGURES)
    usual = make_interval(iteration_p50_ns=MS, iteration_max_ns=2 * MS)
    slow = replace(usual, iteration=10 * (place + 1), iteration_p50_ns=5000 * MS, iteration_max_ns=9000 * MS)
    intervals = [usual] * place + [slow] + [usual] * (COUNT - 1 - place)
    for begin in range(0, COUNT, 256):
        totals.add(Intervals.of(intervals[begin : begin + 256]))
    curves = totals.result()
    assert (slow.iteration, 5000.0) in curves["iteration_p50_ms"]
    assert (slow.iteration, 9000.0) in curves["iteration_max_ms"]
    assert max(map(len, curves.values())) <= 2001


@pytest.mark.parametrize("name", ORDERS)
def test_what_orders_a_figure_s_values_is_known_and_grows_where_the_figure_does(name: str) -> None:
    chance = random.Random(0)
    some = [make_interval(**{each: _any(each, chance) for each in READ}) for _ in range(400)]
    (figure,) = TABLE.named([name])
    pairs = [
        *zip(ORDERS[name](Intervals.of(some)), (FIGURES.value(figure, each) for each in some), strict=True)
    ]
    assert all((key is None) == (value is None) for key, value in pairs)
    known = sorted((key, value) for key, value in pairs if key is not None and isinstance(value, float | int))
    values = [value for _, value in known]
    assert len(values) > 50
    assert all(one <= later * (1 + 1e-12) for one, later in pairwise(values))


def test_what_is_above_the_peak_is_no_speed_but_marked() -> None:
    totals = CurveTotals(FIGURES)
    usual = make_interval(iteration=1, model_flops=10**15, iteration_ns=SECOND)
    totals.add(
        Intervals.of([usual, replace(usual, iteration=2, model_flops=10**18), replace(usual, iteration=3)])
    )
    curves = totals.result()
    assert [at for at, *_ in curves["suspect"]] == [2]
    assert [(at, value is None) for at, value in curves["mfu"]] == [(1, False), (2, True), (3, False)]
    assert [at for at, _ in curves["tokens_per_s"]] == [1, 2, 3]


def test_slow_steps_that_are_not_marked_are_counted() -> None:
    found = small()
    some = trend_of([point(10), point(20)], 2, found.trend.slow_steps, 1003, 1.0)
    labels = [line.label for panel in _panels(found, some) for line in panel.lines]
    assert "slow step, the 1 longest of 1,003" in labels
    all_of_them = trend_of([point(10), point(20)], 2, found.trend.slow_steps, 1, 1.0)
    assert "slow step" in [line.label for panel in _panels(found, all_of_them) for line in panel.lines]


def _panels(found, drawn):
    return trend(replace(found, trend=drawn)).panels


def _any(name: str, chance: random.Random) -> int | None:
    return chance.choice([*[None] * (name in UNKNOWN), *range(9), chance.randrange(10**6)])
