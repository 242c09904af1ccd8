"""Slow steps with their rhythm, and what a trouble costs its intervals."""

from __future__ import annotations

from flagscale_perf.training.analysis.findings.signals import (
    MAX_SLOW_STEPS,
    MIN_RECENT,
    RECENT,
    Signals,
    SlowSteps,
)
from flagscale_perf.training.columns import Intervals
from tests.fakes import MS, make_interval, make_step


def slow_steps(count: int, every: int) -> SlowSteps:
    found = SlowSteps()
    for number in range(1, count + 1):
        found.add(make_step(number, iteration_ns=150 * MS if number % every == 0 else 100 * MS))
    return found


def test_a_step_is_slow_beside_those_before_it() -> None:
    found = slow_steps(100, every=25)
    assert (found.count, found.excess_ns) == (4, 200 * MS)
    assert [(slow.iteration, slow.usual_ns) for slow in found.longest()] == [
        (number, 100 * MS) for number in (25, 50, 75, 100)
    ]


def test_usual_is_the_median_of_the_last_steps() -> None:
    assert slow_steps(MIN_RECENT, every=MIN_RECENT).count == 0, "too few before it"
    found = SlowSteps()
    for number in range(1, 2 * RECENT + 1):
        found.add(make_step(number, iteration_ns=(1000 + number) * MS))
    assert found.add(make_step(2 * RECENT + 1, iteration_ns=3000 * MS))
    assert [slow.usual_ns for slow in found.longest()] == [(1000 + RECENT + RECENT // 2) * MS + MS // 2]


def test_of_many_the_longest_are_kept_and_all_are_counted() -> None:
    found = slow_steps(4 * (MAX_SLOW_STEPS + 20), every=4)
    assert len(found.longest()) == MAX_SLOW_STEPS
    assert found.count == MAX_SLOW_STEPS + 20 - 2, "the first two have too few steps before them"


def test_warm_up_and_passed_over_data_are_not_judged() -> None:
    found = slow_steps(20, every=100)
    assert not found.add(make_step(21, iteration_ns=900 * MS, warmup=1))
    assert not found.add(make_step(22, iteration_ns=900 * MS, outcome=2))
    assert found.add(make_step(23, iteration_ns=900 * MS))


def test_a_trouble_costs_what_its_intervals_take_beyond_the_median_of_the_others() -> None:
    signals = Signals()
    usual = {
        "steps": 10,
        "iteration_ns": 1000 * MS,
        "memory_retries": 0,
        "sm_clock_mhz": 1980,
        "throttle": "",
    }
    signals.add_intervals(Intervals.of(make_interval(10 * number, **usual) for number in range(1, 6)))
    capped = usual | {"iteration_ns": 1300 * MS, "sm_clock_mhz": 990, "throttle": "power"}
    retried = usual | {"iteration_ns": 1100 * MS, "memory_retries": 3}
    signals.add_intervals(Intervals.of([make_interval(60, **capped), make_interval(70, **retried)]))
    usual_ns = signals.usual_ns()
    assert usual_ns == 100 * MS
    assert (signals.throttled.excess_ns(usual_ns), signals.retried.excess_ns(usual_ns)) == (
        300 * MS,
        100 * MS,
    )
    assert (signals.caps, signals.lowest_clock, signals.retries) == ({"power"}, 0.5, 3)
    assert (signals.throttled.first_iteration, signals.throttled.iteration) == (51, 60)


def test_without_an_interval_to_compare_with_a_cost_is_not_known() -> None:
    signals = Signals()
    assert signals.usual_ns() is None
    assert signals.throttled.excess_ns(None) is None
