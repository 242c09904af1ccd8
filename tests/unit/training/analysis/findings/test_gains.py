"""Gains by a replay of captured steps, against the same schedule without the trouble; and by arithmetic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.analysis.rules import Finding
from flagscale_perf.report.findings import gained
from flagscale_perf.spine.records import Record
from flagscale_perf.training.records import CaptureRecord
from tests import pipelines
from tests.fakes import MS
from tests.pipelines import Schedule
from tests.synthetic import Plan, node_record
from tests.unit.training.analysis.findings.planted import findings_of
from tests.unit.training.analysis.findings.test_lateness import LATE_IN_PIPELINE

LOADING = Plan(
    facts={"pipeline_parallel": 2, "pipeline_schedule": "1f1b", "data_parallel": 4, "world_size": 8},
    extra=lambda n: {"data_loading_ns": 120 * MS},
    also=[node_record(stages=[0] * 4 + [1] * 4)],
)


def even(**more: bool) -> Schedule:
    """Passes of 100 and 200 ms in two stages of four ranks, eight steps of four micro-batches."""
    schedule = Schedule(2, 4, batches=4, seed=1, steps=8, **more)
    usual = {"forward": 100, "backward": 200, "optimizer_inner_step": 20}
    schedule.times = {where: usual[where[1]] * MS for where in schedule.times}
    return schedule


def captured(schedule: Schedule) -> tuple[list[Record], int]:
    """Its records, and how long its steps take."""
    steps, whole_ns = schedule.run()
    return [CaptureRecord(7, 14, []), *steps], whole_ns


def found_in(plan: Plan, more: list[Record], directory: Path, name: str) -> Finding:
    return next(
        one for one in findings_of(replace(plan, also=[*plan.also, *more]), directory) if one.name == name
    )


def test_what_all_ranks_load_gains_what_the_schedule_does_without(tmp_path: Path, monkeypatch) -> None:
    """Of 40 ms in each forward pass; by arithmetic 11.1 % of a step, whoever waits for whom."""
    monkeypatch.setattr(pipelines, "LOADING_NS", 40 * MS)
    schedule = even(is_nested=True)
    records, slow_ns = captured(schedule)
    for where in schedule.times:
        schedule.times[where] -= 40 * MS * (where[1] == "forward")
    monkeypatch.setattr(pipelines, "LOADING_NS", 0)
    gain = slow_ns / captured(schedule)[1] - 1
    found = found_in(LOADING, records, tmp_path, "data_stall")
    assert found.likely_gain == pytest.approx(gain, rel=0.02)
    assert found.least_gain is not None and found.gain is not None
    assert found.least_gain <= gain <= found.gain
    assert (found.what_if, found.gain_from) == ("data_loading=0", "replay of 7 captured steps, 8-14")
    assert gained(found).endswith("; replay of 7 captured steps, 8-14)")


def test_captured_steps_that_do_not_show_it_leave_the_bound(tmp_path: Path) -> None:
    """They are of another time: nearly nothing was loaded."""
    found = found_in(LOADING, captured(even(is_nested=True))[0], tmp_path, "data_stall")
    assert (found.least_gain, found.likely_gain) == (None, None)
    assert gained(found) == ("at most +12.5 % tokens/s (arithmetic: 7 captured steps do not show it)")


def test_without_captured_steps_the_bound_says_what_would_replace_it(tmp_path: Path) -> None:
    found = found_in(LOADING, [], tmp_path, "data_stall")
    assert gained(found) == (
        "at most +12.5 % tokens/s (arithmetic: `flagscale-perf capture RUN` would replace it)"
    )
    assert found.what_if == "data_loading=0"


def test_a_late_rank_of_the_faster_stage_gains_its_first_micro_batch_alone(tmp_path: Path) -> None:
    """Its stage waits 100 ms a step for rank 1, while the other stage takes longer still."""
    schedule = even()
    for where in schedule.times:
        rank, phase, *_ = where
        schedule.times[where] += 25 * MS * ((rank, phase) == (1, "forward")) + 200 * MS * (rank // 4 == 1)
    records, late_ns = captured(schedule)
    for where in schedule.times:
        schedule.times[where] -= 25 * MS * (where[:2] == (1, "forward"))
    found = found_in(LATE_IN_PIPELINE, records, tmp_path, "straggler")
    assert found.likely_gain == pytest.approx(late_ns / captured(schedule)[1] - 1, rel=0.1)
    step_ms = late_ns / 8 / MS
    assert found.likely_gain < 0.5 * 100 / step_ms, "what its stage waits, by arithmetic"


@pytest.mark.parametrize(
    ("least", "likely", "most", "text"),
    [
        (0.02, 0.03, 0.05, "+3.0 % tokens/s (+2.0 % to +5.0 %; replay of 7 captured steps)"),
        (-0.01, 0.0, 0.01, "no gain (-1.0 % to +1.0 % tokens/s; replay of 7 captured steps)"),
        (-0.01, 0.1, 0.2, "no gain that is sure (-1.0 % to +20.0 % tokens/s; replay of 7 captured steps)"),
    ],
)
def test_how_a_gain_is_said(tmp_path: Path, least: float, likely: float, most: float, text: str) -> None:
    found = found_in(LOADING, [], tmp_path, "data_stall")
    from_where = "replay of 7 captured steps"
    one = replace(found, least_gain=least, likely_gain=likely, gain=most, gain_from=from_where)
    assert gained(one) == text
