"""Slow single steps: with a period, without one, and explained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import MS
from tests.synthetic import Plan
from tests.unit.training.analysis.findings.planted import PLANTED, findings_of, when


def test_steps_with_a_period_say_it_and_their_phase_and_are_no_jitter_besides(tmp_path: Path) -> None:
    (found,) = findings_of(PLANTED["periodic_steps"][0], tmp_path)
    assert found.title == (
        "About every 40 steps one takes 500.0 ms longer in the train step outside every phase: "
        "1.2 % of the steps' time"
    )
    assert (found.phase, found.pattern, found.first_iteration, found.iteration) == (
        "other",
        "periodic",
        7,
        567,
    )


def test_two_bursts_of_slow_steps_have_no_period(tmp_path: Path) -> None:
    """Two stretches, from 100 and from 105 on, have one distance, of 5: no period at all."""
    plan = Plan(extra=lambda n: when(n in (100, 101, 102, 105, 106, 107), other_ns=2000 * MS))
    assert [each.name for each in findings_of(plan, tmp_path)] == []


def test_single_steps_slow_in_one_phase_say_which(tmp_path: Path) -> None:
    (found,) = findings_of(PLANTED["slow_steps"][0], tmp_path)
    assert found.title == (
        "45 steps, at irregular intervals, take 600.0 ms longer on average in forward: "
        "4.3 % of the steps' time"
    )
    assert (found.phase, found.pattern, found.ranks) == ("forward", "single", [])


def test_bursts_say_how_many_and_how_long(tmp_path: Path) -> None:
    bursts = {start + step for start in (60, 171, 300, 333, 490) for step in range(6)}
    (found,) = findings_of(Plan(extra=lambda n: when(n in bursts, data_loading_ns=400 * MS)), tmp_path)
    assert found.title == (
        "30 steps, in 5 bursts of some 6, take 400.0 ms longer on average in data loading: "
        "2.0 % of the steps' time"
    )
    assert (found.pattern, found.first_iteration, found.iteration) == ("bursts", 60, 495)
    assert found.changes[0].flags == ["--num-workers"]


def test_steps_slow_in_all_phases_are_jitter_that_names_none(tmp_path: Path) -> None:
    (found,) = findings_of(PLANTED["jitter"][0], tmp_path)
    assert found.title == (
        "Steps are uneven: 45 of 599 take 1.2 times the usual or more, at irregular intervals and in no "
        "phase in particular"
    )
    assert (found.phase, found.pattern) == (None, None)


def test_a_few_slow_steps_are_no_finding(tmp_path: Path) -> None:
    assert findings_of(Plan(extra=lambda n: when(n in (100, 333), other_ns=900 * MS)), tmp_path) == []


@pytest.mark.parametrize("name", ["periodic_steps", "slow_steps", "jitter"])
def test_slow_steps_of_a_profiled_run_may_be_the_profilers(name: str, tmp_path: Path) -> None:
    plan = replace(PLANTED[name][0], options={"perf_profile_steps": "7-9/40"})
    (found,) = findings_of(plan, tmp_path)
    assert (found.name, found.causes[0]) == (
        name,
        "profiling: --perf-profile-steps 7-9/40 makes these iterations longer, and, while their events are "
        "read, the next ones",
    )
