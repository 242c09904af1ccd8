"""Captured steps of every rank side by side: one slow rank of many, and one slow link."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.report.html import render
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.store import kept
from flagscale_perf.training.analysis.blocks import report_of
from flagscale_perf.training.analysis.captured import ALL_WORK, MAX_ROWS, CapturedFold
from flagscale_perf.training.analysis.fold import read_report
from flagscale_perf.training.analysis.tables import CapturedRank, CapturedRanks, SlowLink
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.phases import NUMBER_OF
from flagscale_perf.training.rank_records import NodeRecord
from flagscale_perf.training.records import CapturedRecord, CaptureRecord
from tests.fakes import MS, SECOND, make_facts, make_header
from tests.pipelines import Schedule

STAGES, REPLICAS, BATCHES = 2, 60, 4
RANKS, SLOW = STAGES * REPLICAS, 77
LATE_MS = 5


def schedule(**changed: int) -> Schedule:
    """All ranks work alike but the slow one, in each of its four forward passes."""
    job = Schedule(STAGES, REPLICAS, BATCHES, seed=3)
    usual = {"forward": 10 * MS, "backward": 20 * MS, "optimizer_inner_step": MS}
    job.times = {key: usual[key[1]] for key in job.times}
    for step in range(job.steps):
        for batch in range(BATCHES):
            job.times[SLOW, "forward", step, batch] += LATE_MS * MS
    job.message_ns = MS
    return job


def folded(captured: list[CapturedRecord], per_node: int = 8) -> CapturedRanks | None:
    """Each machine's clock is another one: nothing here may compare them."""
    facts = make_facts(world_size=RANKS, pipeline_parallel=STAGES, pipeline_schedule="1f1b")
    fold = CapturedFold(RunFacts.of(vars(facts)))
    for first in range(0, RANKS, per_node):
        ranks = list(range(first, min(first + per_node, RANKS)))
        devices, stages = ["H200"] * len(ranks), [rank // REPLICAS for rank in ranks]
        fold.node(NodeRecord(f"node{first // per_node}", ranks, ranks, devices, stages))
    fold.window(CaptureRecord(7, 8, []))
    for each in captured:
        fold.add(replace(each, start_ns=each.start_ns + each.rank // per_node * 10**12))
    return fold.result()


def test_one_slow_rank_is_seen_however_many_share_its_row() -> None:
    found = folded(schedule().run()[0])
    assert found is not None
    assert found.steps == [7, 8]
    assert found.slow == [CapturedRank(SLOW, "node9", 1, "Forward", 2, BATCHES * LATE_MS)]
    assert len(found.rows) == MAX_ROWS
    assert [first for first, _ in found.rows] == [3 * row for row in range(MAX_ROWS)]
    row = SLOW * MAX_ROWS // RANKS
    for part in (ALL_WORK, "Forward"):
        cells = found.beyond_ms[part]
        assert cells[row] == [BATCHES * LATE_MS] * 2
        assert all(each == [0, 0] for number, each in enumerate(cells) if number != row)
    assert not any(each for cells in found.beyond_ms["Backward"] for each in cells)


def test_a_slow_link_is_told_from_others_of_its_kind_without_a_common_clock() -> None:
    job = schedule()
    job.longer_ns = {(20, 80): 4 * MS}
    found = folded(job.run()[0])
    assert found is not None
    assert found.links == [SlowLink([20, 80], ["node2", "node10"], 10.0, 2.0, REPLICAS)]


@pytest.mark.parametrize("kept", ["one rank", "no rank"])
def test_without_other_ranks_there_is_nothing_to_show(kept: str) -> None:
    captured = schedule().run()[0] if kept == "one rank" else []
    assert folded([each for each in captured if each.rank == 0]) is None


def test_a_step_that_is_not_complete_is_shown_of_the_ranks_there_are() -> None:
    found = folded([each for each in schedule().run()[0] if each.rank != 5])
    assert found is not None
    assert found.slow[0].rank == SLOW


def test_of_ten_thousand_ranks_the_slow_one_is_on_a_small_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the second report goes on from what is kept of the first."""
    ranks, slow = 10_000, 4711
    forward = 2 * NUMBER_OF["forward-compute"]
    header = make_header(facts=make_facts(world_size=ranks, pipeline_parallel=1, pipeline_schedule=None))
    path = tmp_path / "perf_records_20240129_103000.jsonl"
    with path.open("wb") as file:
        file.write(encode(header))
        file.write(encode(NodeRecord("node0", [*range(ranks)], [1] * ranks, ["H200"] * ranks, [0] * ranks)))
        file.write(encode(CaptureRecord(7, 11, [])))
        for step in range(7, 12):
            for rank in range(ranks):
                took_ns = (130 if rank == slow else 100) * MS
                marks = [forward, 0, forward + 1, took_ns]
                file.write(encode(CapturedRecord(rank, step, rank * SECOND, 200 * MS, marks)))
    monkeypatch.setattr(kept, "MIN_BYTES", 1)
    monkeypatch.setattr(kept, "_BYTES_A_VALUE", 1)
    first, again = (read_report(open_session(path)) for _ in range(2))
    assert first.captured is not None
    assert [(one.rank, one.beyond_ms) for one in first.captured.slow] == [(slow, 30.0)]
    row = slow * MAX_ROWS // ranks
    assert first.captured.beyond_ms[ALL_WORK][row] == [30.0] * 5
    assert again.captured == first.captured
    assert [*tmp_path.glob("cache/*.state")]
    assert len(render(report_of(again)).encode()) < 3_000_000


def test_steps_that_took_no_time_are_damaged() -> None:
    assert folded([replace(each, train_step_ns=0) for each in schedule().run()[0]]) is None
