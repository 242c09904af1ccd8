"""Late data: whose it is, and what it explains."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.training.analysis.findings.data import data_stall
from tests.fakes import MS
from tests.synthetic import STEPS, Plan, node_record, ranks_record
from tests.unit.training.analysis.findings.planted import findings_of, slow_rank


def test_late_data_names_the_ranks_that_wait_for_it(tmp_path: Path) -> None:
    late = [5 * MS] * 6 + [110 * MS] * 2
    found = findings_of(
        Plan(also=[node_record(), *(ranks_record(n, data_ns=late) for n in range(10, STEPS, 10))]), tmp_path
    )
    assert [(each.name, each.title, each.ranks) for each in found] == [
        ("data_stall", "Waiting for data takes 11.0 % of the steps' time on ranks 6, 7", [6, 7])
    ]
    # 110 ms of a mean step that is a little longer than the usual one of 1000 ms
    assert found[0].gain == pytest.approx(0.11 / 0.89, rel=0.005)
    (evidence,) = found[0].evidence
    assert evidence.value == pytest.approx(0.11, rel=0.005)
    assert evidence.limit == data_stall.limits["data_stall"].value
    assert found[0].changes[0].flags == ["--num-workers"]


def test_a_rank_that_is_late_with_its_data_is_a_data_stall_and_no_straggler_besides(tmp_path: Path) -> None:
    late = slow_rank(first_iteration=1, iteration=STEPS, phase="data_loading", excess_ns=105 * MS)
    alone = findings_of(Plan(extra=lambda n: {"exposed_grad_comm_ns": 105 * MS}, also=[late]), tmp_path)
    assert [each.name for each in alone] == ["straggler"]
    data = [5 * MS] * 5 + [110 * MS] + [5 * MS] * 2
    ranks = [node_record(), *(ranks_record(n, data_ns=data) for n in range(10, STEPS, 10))]
    both = findings_of(
        Plan(extra=lambda n: {"exposed_grad_comm_ns": 105 * MS}, also=[*ranks, late]), tmp_path
    )
    assert [(each.name, each.ranks) for each in both] == [("data_stall", [5])]
