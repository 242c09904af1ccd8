"""Late data: whose it is, and what it costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.training.analysis.findings.data import data_stall
from flagscale_perf.training.analysis.fold import read_report
from tests.fakes import MS
from tests.synthetic import Plan, cuts_records, node_record, ranks_record, write
from tests.unit.training.analysis.findings.planted import findings_of, when


def test_a_rank_that_is_late_with_its_data_is_a_data_stall_and_no_straggler(tmp_path: Path) -> None:
    cuts = cuts_records(lambda rank, step: when(rank == 6, data_loading_ns=105 * MS))
    plan = Plan(
        extra=lambda n: {"exposed_grad_comm_ns": 105 * MS}, also=[node_record(), ranks_record(600), *cuts]
    )
    (found,) = findings_of(plan, tmp_path)
    assert (found.name, found.ranks, found.phase, found.pattern) == (
        "data_stall",
        [6],
        "data_loading",
        "constant",
    )
    assert found.title.startswith("Rank 6 on node0 makes the others wait 10")
    assert found.gain == pytest.approx(0.105, rel=0.03)
    (evidence,) = found.evidence
    assert evidence.limit == data_stall.limits["data_stall"].value
    # What all ranks have in common and pay alike is no advice for one of them.
    assert [change.flags for change in found.changes] == [[], ["--num-workers"], []]


def test_data_that_is_late_on_all_ranks_is_nobody_s(tmp_path: Path) -> None:
    cuts = cuts_records(lambda rank, step: {"data_loading_ns": 105 * MS})
    plan = Plan(extra=lambda n: {"data_loading_ns": 105 * MS}, also=[node_record(), ranks_record(600), *cuts])
    (found,) = findings_of(plan, tmp_path)
    assert (found.name, found.ranks) == ("data_stall", [])
    assert found.cost_share == pytest.approx(0.11 / 1.11, rel=0.03)


CPU = {"device": "CPU (rehearsal)", "rehearsal": True, "peak_flop_per_s": None}
UNREAD = "data loading and communication below 30.0 % of the steps' time: how long ranks waited for a CPU is"


@pytest.mark.parametrize(
    ("data_ms", "is_read", "is_found"),
    [
        (105, False, False),  # nothing tells whether ranks had a CPU
        (900, False, True),
        (105, True, True),
        (30, True, False),  # each of sixteen micro-batches waits for its CPU
    ],
)
def test_where_cpus_compute_loading_may_wait_for_one(
    data_ms: int, is_read: bool, is_found: bool, tmp_path: Path
) -> None:
    plan = Plan(
        facts=CPU | {"global_batch_size": 64, "data_parallel": 4},
        extra=lambda n: {"data_loading_ns": data_ms * MS},
        host=(lambda n: {"run_delay_ns": n}) if is_read else None,
    )
    report = read_report(open_session(write(plan, tmp_path)))
    assert [each.name for each in report.findings] == ["data_stall"] * is_found
    assert any(each.startswith(UNREAD) for each in report.unjudged) is not is_read
