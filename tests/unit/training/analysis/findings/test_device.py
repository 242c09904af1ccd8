"""Capped clocks, small kernels, work done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.synthetic import Plan
from tests.unit.training.analysis.findings.planted import PLANTED, findings_of


def test_a_capped_clock_has_its_stretch_and_both_limits(tmp_path: Path) -> None:
    (found,) = findings_of(PLANTED["throttling"][0], tmp_path)
    assert (found.first_iteration, found.iteration, found.ranks) == (201, 400, [0])
    assert [(each.limit, each.unit) for each in found.evidence] == [(0.97, "share"), (0.01, "share")]
    assert found.evidence[0].value == pytest.approx(1400 / 1980)


def test_a_cap_without_a_lower_clock_is_none(tmp_path: Path) -> None:
    """A device at its power limit reports the cap all the time."""
    assert findings_of(Plan(reading=lambda n: {"throttle": "power"}), tmp_path) == []


def test_a_lower_clock_that_costs_no_time_is_none(tmp_path: Path) -> None:
    plan = Plan(reading=lambda n: {"throttle": "power", "sm_clock_mhz": 1980 if n <= 20 else 1400})
    assert findings_of(plan, tmp_path) == []


def test_recomputation_is_right_where_memory_is_full(tmp_path: Path) -> None:
    plan = Plan(step=lambda n: {"hardware_flops": 3_200 * 10**12 * 4 // 3})
    assert findings_of(plan, tmp_path) == []


def test_an_mfu_that_no_device_reaches_is_doubted(tmp_path: Path) -> None:
    (found,) = findings_of(Plan(facts={"peak_flop_per_s": 5e14}), tmp_path)
    assert (found.title, found.cost_s) == ("MFU of 79.8 % is more than a device is likely to do", None)
