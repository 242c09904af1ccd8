"""Where ranks wait for one another and nobody is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import MS
from tests.synthetic import Plan
from tests.unit.training.analysis.findings.planted import PLANTED, findings_of


def test_a_file_without_cuts_names_no_rank(tmp_path: Path) -> None:
    """Which rank is late, rank 0's waiting alone does not say; it is exposed communication."""
    plan = Plan(extra=lambda n: {"exposed_grad_comm_ns": 200 * MS})
    assert [(each.name, each.ranks) for each in findings_of(plan, tmp_path)] == [("exposed_comm", [])]


@pytest.mark.parametrize(("percent", "names"), [(5.0, ["straggler"]), (50.0, [])])
def test_from_which_share_on_a_rank_is_named_is_chosen(
    tmp_path: Path, percent: float, names: list[str]
) -> None:
    plan, _ = PLANTED["straggler"]
    chosen = replace(plan, options={"perf_straggler_threshold": percent})
    found = [each for each in findings_of(chosen, tmp_path) if each.name == "straggler"]
    assert [each.name for each in found] == names
    for each in found:
        (evidence,) = each.evidence
        assert (evidence.limit, evidence.source) == (0.05, "--perf-straggler-threshold of the run")
