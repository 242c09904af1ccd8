"""Slow single steps: with a period, without one, and explained."""

from __future__ import annotations

from pathlib import Path

from tests.fakes import MS
from tests.synthetic import Plan
from tests.unit.training.analysis.findings.planted import PLANTED, findings_of, when


def test_pauses_with_a_period_are_no_jitter_besides(tmp_path: Path) -> None:
    (found,) = findings_of(PLANTED["gc_pauses"][0], tmp_path)
    assert found.title.startswith("About every 40 steps one is slow, as when Python collects garbage: 1.2")


def test_steps_without_a_period_are_jitter(tmp_path: Path) -> None:
    (found,) = findings_of(PLANTED["jitter"][0], tmp_path)
    assert found.title == "Steps are uneven: 45 of 599 take 1.2 times the usual or more, at no even distance"


def test_a_few_slow_steps_are_no_finding(tmp_path: Path) -> None:
    assert findings_of(Plan(extra=lambda n: when(n in (100, 333), other_ns=900 * MS)), tmp_path) == []
