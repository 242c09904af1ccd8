"""What is found in traces, as data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.trace.analysis import verdicts
from flagscale_perf.trace.analysis.instrument import read_report
from flagscale_perf.trace.figures import MIB
from flagscale_perf.trace.lines import Lines
from flagscale_perf.trace.records import CallRecord, OperationRecord
from tests.trace_runs import MS, START_WALL_NS, Job, pipeline


def test_records_are_summed_up(tmp_path: Path) -> None:
    found = read_report(open_session(pipeline(steps=10).write(tmp_path)))
    content = json.loads(json.dumps(found.as_dict()))
    assert content["calls"] == {
        "count": 20,
        "total_ns": 1280 * MS,
        "get_ns": 60 * MS,
        "compute_ns": 1180 * MS,
        "put_ns": 40 * MS,
    }
    assert content["traces"] == {"count": 20, "is_exact": True, "calls_without_id": 20}
    assert content["operations"]["put"]["verdict"] == "fair"
    assert [(one["stage"], one["ns"]) for one in content["operations"]["get"]["waterfall"]] == [
        ("unit", 40 * MS),
        ("decode", 10 * MS),
        ("pack", 8 * MS),
        ("other", 2 * MS),
    ]
    assert content["lineage"]["joined"] == 640
    assert content["wall_ns"] == 1950 * MS


def test_what_failed_counts_as_calls_and_not_as_bytes(tmp_path: Path) -> None:
    job = Job()
    worker = job.process("W", 1)
    job.put(worker, 0, range(8), error="TimeoutError")
    job.call(worker, "boom", 0, compute_ns=50 * MS, put_ns=None, error="ValueError")
    content = read_report(open_session(job.write(tmp_path))).as_dict()
    assert content["functions"]["boom"]["errors"] == {"ValueError": 1}
    put = content["operations"]["put"]
    assert (put["total_ns"]["count"], put["size_bytes"]["count"], put["errors"]) == (
        1,
        0,
        {"TimeoutError": 1},
    )


@pytest.mark.parametrize(
    ("share", "verdict"),
    [(0.1999, "good"), (0.2, "watch"), (0.3, "watch"), (0.3001, "anomaly"), (None, None)],
)
def test_the_queues_share_is_judged(share: float | None, verdict: str | None) -> None:
    assert verdicts.of_queue(share) == verdict


@pytest.mark.parametrize(
    ("mib", "verdict"), [(500.01, "good"), (500, "fair"), (100, "fair"), (99.99, "suspect")]
)
def test_a_throughput_is_judged(mib: float, verdict: str) -> None:
    assert verdicts.of_speed(mib * MIB) == verdict
    assert (verdicts.of_compute(0.8), verdicts.of_compute(0.81)) == ("watch", "good")


def test_lines_and_records_of_a_run_give_the_same_figures(tmp_path: Path) -> None:
    job = pipeline(steps=40)
    names = {(one.process, one.number): one.text for one in job.records if isinstance(one, NameRecord)}
    pids = {one.number: one.pid for one in job.records if isinstance(one, ProcessRecord)}
    made = {process: Lines(Anchor(START_WALL_NS, 0), pid) for process, pid in pids.items()}
    for (process, number), text in names.items():
        made[process].names[number] = text
    lines = [
        f"(W pid={pids[record.process]}) {line}"
        for record in job.records
        if isinstance(record, CallRecord | OperationRecord)
        for line in made[record.process].of(record)
    ]
    (tmp_path / "a.log").write_text("\n".join(lines) + "\n")
    text, run = (
        read_report(open_session(tmp_path / "a.log")).as_dict(),
        read_report(open_session(job.write(tmp_path))).as_dict(),
    )
    assert text["losses"] == run["losses"]
    assert text["traces"] == run["traces"]
    assert text["calls"] == pytest.approx(run["calls"])
    for name in ("rollout", "train"):
        for figure in ("total_ns", "get_ns", "compute_ns", "put_ns"):
            assert text["functions"][name][figure] == pytest.approx(run["functions"][name][figure])
    for kind in ("put", "get"):
        for figure in ("total_ns", "bytes_per_s", "size_bytes", "model"):
            assert text["operations"][kind][figure] == pytest.approx(run["operations"][kind][figure])
