"""A queue's processes as lanes: who waits for whom, and that what was recorded comes out again."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.trace.analysis.flow import BETWEEN, QueueFlow, flow_of
from flagscale_perf.trace.analysis.source import read_traces
from flagscale_perf.whatif.flows import ends_of, made_of
from tests.trace_runs import Job
from tests.unit.trace.analysis.test_changeable import in_calls


def found(directory: Path, job: Job) -> QueueFlow | None:
    transfers = read_traces(open_session(job.write(directory))).transfers
    assert transfers is not None
    return flow_of(transfers)


@pytest.mark.parametrize(("train_ms", "ahead", "waits"), [(20, 0, True), (80, 1, True), (20, 6, False)])
def test_a_producer_waits_for_a_step_where_it_begins_behind_one(
    tmp_path: Path, train_ms: int, ahead: int, waits: bool
) -> None:
    flow = found(tmp_path, in_calls(train_ms=train_ms, ahead=ahead))
    assert flow is not None and bool(flow.rooms) is waits
    assert ends_of(made_of(flow.flow)) == [[one.end_ns for one in lane] for lane in flow.flow.lanes]
    assert set(flow.phases) >= {BETWEEN, "get", "put", "generate", "train"}
    (maker,), (user,) = flow.makers, flow.users
    assert (len(flow.makers[maker]), len(flow.flow.units)) == (20, 20)
    assert {lane for lane, _ in flow.flow.units} == {user}


def test_of_gets_that_are_neither_asked_for_nor_in_calls_nothing_is_known(tmp_path: Path) -> None:
    job = Job()
    maker, user = job.process("Rollout", 1), job.process("Trainer", 2)
    for number in range(10):
        rows = range(number * 8, number * 8 + 8)
        job.put(maker, number * 10**8, rows)
        job.get(user, number * 10**8 + 5 * 10**7, rows)
    assert found(tmp_path, job) is None
