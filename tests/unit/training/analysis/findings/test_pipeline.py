"""Uneven stages, side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import MS
from tests.synthetic import STEPS, Plan, node_record, ranks_record
from tests.unit.training.analysis.findings.planted import findings_of


def test_a_slow_stage_is_seen_side_by_side_too(tmp_path: Path) -> None:
    # Of 1000 ms stage 1 works 950, the others 750: each would get 800.
    work = [750 * MS, 750 * MS, 950 * MS, 950 * MS, 750 * MS, 750 * MS, 750 * MS, 750 * MS]
    stages = node_record(stages=[0, 0, 1, 1, 2, 2, 3, 3])
    found = findings_of(
        Plan(also=[stages, *(ranks_record(n, work_ns=work) for n in range(10, STEPS, 10))]), tmp_path
    )
    assert [(each.name, each.ranks) for each in found] == [("slow_stage", [2, 3])]
    assert (
        found[0].title
        == "Pipeline stage 1 has more to do: an even division would save 15.0 % of the steps' time"
    )
    assert found[0].gain == pytest.approx(0.15 / 0.85)
