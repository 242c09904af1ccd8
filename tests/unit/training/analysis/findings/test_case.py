"""The case: what is taken from the report, and what of rank 0's waiting others explain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flagscale_perf.analysis.rules import Rule
from flagscale_perf.spine.limits import Limit
from flagscale_perf.training.analysis.findings.case import TrainingCase, interrupts, slows, warns
from flagscale_perf.training.analysis.findings.signals import Signals
from tests.reports import small

CASE = TrainingCase(small(), Signals(), steps=20, rated_s=100.0)
RULE: Rule[TrainingCase] = Rule(
    "checkpoint",
    {"checkpoint": Limit(0.1, "share", "made up")},
    ["a cause"],
    [],
    frozenset(),
    False,
    True,
    lambda rule, case: None,
)


def test_speed_is_judged_from_20_steps_on() -> None:
    assert CASE.can_judge_speed and not replace(CASE, steps=19).can_judge_speed


def test_a_share_of_the_steps() -> None:
    assert CASE.share_of_steps(25.0) == 0.25
    assert (CASE.share_of_steps(None), replace(CASE, rated_s=0.0).share_of_steps(1.0)) == (None, None)


def test_what_slows_the_steps_costs_its_share_of_their_time() -> None:
    evidence = [RULE.broke("a figure", 0.2, "checkpoint")]
    found = slows(RULE, CASE, "slow", 0.2, evidence)
    assert (found.cost_s, found.gain, found.gain_of) == (20.0, 0.25, "tokens/s")
    assert (found.evidence[0].limit, found.causes) == (0.1, ["a cause"])
    assert slows(RULE, CASE, "slower than possible", 3.0, []).gain == pytest.approx(99.0)


def test_what_stands_between_the_steps_costs_its_share_of_the_session() -> None:
    found = interrupts(RULE, CASE, "pauses", [], CASE.report.goodput.wall_s / 4)
    assert (found.cost_s, found.cost_share) == (20.0, 0.25)
    assert found.gain == pytest.approx(1 / 3)


def test_a_risk_costs_nothing_yet() -> None:
    found = warns(RULE, "risk", [])
    assert (found.cost_s, found.cost_share, found.gain) == (None, None, None)
