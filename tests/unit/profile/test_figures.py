"""The figures of a step."""

from __future__ import annotations

from flagscale_perf.profile.figures import PARTS, STEPS
from flagscale_perf.spine.figures import Rows
from flagscale_perf.spine.records import RunHeader
from tests.profiled import clean, step

HEADER = RunHeader(1, "20240129_103000", 0, 0, {}, {}, "profile")


def test_the_parts_of_a_step_and_its_residual_are_the_step() -> None:
    row = Rows(STEPS, HEADER).csv(step(1))
    assert sum(row[f"{key}_ms"] for key, _ in PARTS) == row["total_ms"] == 100.0
    assert row["communication_ratio"] == 0.12
    assert (row["iteration"], row["profiled"], row["tokens"]) == (20, 1, 128)


def test_a_clean_step_has_its_time_alone() -> None:
    row = Rows(STEPS, HEADER).csv(clean(1))
    assert row["total_ms"] == 95.0
    assert {row[f"{key}_ms"] for key, _ in PARTS} == {None}
    assert row["communication_ratio"] is None
