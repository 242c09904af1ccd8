"""Capped clocks, small kernels, work done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.training.analysis.fold import read_report
from tests.fakes import MS
from tests.synthetic import Plan, write
from tests.unit.training.analysis.findings.planted import PLANTED, findings_of

COUNTED = "MFU by the tensor cores' counter: "


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


@pytest.mark.parametrize(
    ("ppm", "counted"),
    [(450_000, 46.7), (300_000, 31.1)],  # 1980 MHz x 132 SMs x 4096 FLOP x 45 % x 3200 / 3300 are 46.7 %
)
def test_an_mfu_that_the_counter_does_not_confirm(ppm: int, counted: float, tmp_path: Path) -> None:
    (found,) = findings_of(Plan(reading=lambda n: {"tensor_ppm": ppm}), tmp_path)
    title = f"MFU is 39.9 % by the formula, {counted} % by the tensor cores' counter"
    assert (found.name, found.title, found.ranks, found.cost_s) == ("mfu_by_counter", title, [0], None)
    assert [cause.split(":")[0] for cause in found.causes[:2]] == [
        "the formula is wrong for this model",
        "work that is not the model's",
    ]


@pytest.mark.parametrize("ppm", [360_000, 410_000])
def test_two_points_apart_are_no_finding(ppm: int, tmp_path: Path) -> None:
    assert findings_of(Plan(reading=lambda n: {"tensor_ppm": ppm}), tmp_path) == []


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (
            Plan(reading=lambda n: {"tensor_ppm": None, "tensor_ns": None}),
            "read in 0 s of 601 s trained; it needs Hopper or later, and no MIG slices",
        ),
        (
            Plan(reading=lambda n: {"tensor_ppm": 800_000, "processes": 2}),
            "2 processes are on rank 0's device",
        ),
        (
            Plan(reading=lambda n: {"tensor_ppm": 800_000}, facts={"flop_per_clock": None}),
            "how much NVIDIA H200 multiplies in a clock is not known, devices differ, or there is fp8",
        ),
        (
            Plan(reading=lambda n: {"tensor_ppm": 800_000 if n < 300 else None}),
            "read in 299 s of 601 s trained; it needs Hopper or later, and no MIG slices",
        ),
        (
            Plan(reading=lambda n: {"tensor_ppm": 800_000}, step=lambda n: {"eval_ns": 900 * MS * (n % 2)}),
            "read in 301 s of 601 s trained; it needs Hopper or later, and no MIG slices",
        ),
    ],
)
def test_what_the_counter_cannot_be_held_against(plan: Plan, why: str, tmp_path: Path) -> None:
    report = read_report(open_session(write(plan, tmp_path)))
    assert [found for found in report.findings if found.name == "mfu_by_counter"] == []
    assert [line for line in report.unjudged if line.startswith(COUNTED)] == [COUNTED + why]


def test_one_stage_of_a_pipeline_is_no_mean_over_all(tmp_path: Path) -> None:
    plan = PLANTED["pipeline_bubble"][0]
    report = read_report(open_session(write(plan, tmp_path)))
    assert COUNTED + "rank 0's device has one stage of several" in report.unjudged
