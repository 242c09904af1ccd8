"""Where ranks wait for one another and nobody is named."""

from __future__ import annotations

from pathlib import Path

from tests.fakes import MS
from tests.synthetic import Plan
from tests.unit.training.analysis.findings.planted import findings_of


def test_a_file_without_cuts_names_no_rank(tmp_path: Path) -> None:
    """Which rank is late, rank 0's waiting alone does not say; it is exposed communication."""
    plan = Plan(extra=lambda n: {"exposed_grad_comm_ns": 200 * MS})
    assert [(each.name, each.ranks) for each in findings_of(plan, tmp_path)] == [("exposed_comm", [])]
