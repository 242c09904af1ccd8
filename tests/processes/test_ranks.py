"""Ranks in processes of their own, on one node and on two: who they are, how fast, and which of them has
died.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.perf_logger import WRITER
from flagscale_perf.spine.records import EventRecord
from flagscale_perf.training.analysis.every_rank import EveryRank
from flagscale_perf.training.rank_records import NodeRecord, RanksRecord
from flagscale_perf.training.ranks.collector import COLLECTOR
from tests.fakes import MS
from tests.processes.node import nodes
from tests.processes.trainer import ended_summary, records_in, text_of, wait_for

GB = 10**9


def pid_of(answer: str) -> int:
    return int(json.loads(answer)[1])


def kept(directory: Path, kind: type) -> list[Any]:
    """Records of the kind so far; a line that is being written counts not yet."""
    if not text_of(directory, "perf_records_*.jsonl").endswith("\n"):
        return []
    return [record for record in records_in(directory) if isinstance(record, kind)]


def known_ranks(directory: Path) -> list[int]:
    return sorted(rank for record in kept(directory, NodeRecord) for rank in record.ranks)


def texts(directory: Path) -> list[str]:
    return [event.text for event in kept(directory, EventRecord)]


def has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_two_nodes_meet_in_rank_0_s_run_file(tmp_path: Path) -> None:
    with nodes(tmp_path, range(0, 2), range(2, 4)) as (first, second):
        pids = {}
        for node, rank in ((second, 3), (second, 2), (first, 1), (first, 0)):
            pids[rank] = pid_of(node.tell(rank, "begin"))
            node.tell(rank, "put", 24)
        wait_for("all ranks", lambda: known_ranks(tmp_path) == [0, 1, 2, 3])
        by_rank = {
            rank: (r.hostname, pid)
            for r in kept(tmp_path, NodeRecord)
            for rank, pid in zip(r.ranks, r.pids, strict=True)
        }
        assert by_rank == {rank: (f"node{rank - rank % 2}", pids[rank]) for rank in range(4)}
        (collector,) = second.companions(COLLECTOR)
        assert (first.companions(COLLECTOR), os.getsid(collector.pid) == os.getsid(pids[2])) == ([], False)
        assert not [mapped for mapped in collector.memory_maps() if "libtorch" in mapped.path]

        second.tell(3, "kill")
        gone = [
            f"rank {rank} (node{rank - rank % 2}, CPU, pid {pids[rank]}) is gone after iteration 24: "
            for rank in (3, 1)
        ]
        wait_for("the first death", lambda: [text[: len(gone[0])] for text in texts(tmp_path)] == gone[:1])
        first.tell(1, "kill")
        wait_for("the second one", lambda: [text[: len(gone[0])] for text in texts(tmp_path)] == gone)

        first.tell(0, "close")
        second.tell(2, "close")
        wait_for("the collector's end", lambda: has_ended(collector))
    summed = kept(tmp_path, RanksRecord)[0]
    assert (summed.first_iteration, summed.ranks_per_entry, summed.silent) == (1, 1, [])
    assert summed.memory_peak_bytes == [1 * GB, 2 * GB, 3 * GB, 4 * GB]
    assert summed.iteration_ns == [100 * MS] * 4
    assert summed.data_ns == [2 * MS] * 4
    assert ended_summary(tmp_path)["session_info"]["end_reason"] == "completed"
    assert not list(tmp_path.glob(".ranks_*"))
    rows = sorted(row[1:5] for row in EveryRank(open_session(tmp_path)).rows())
    here, blocks = os.uname().nodename, ((1, 4), (5, 9), (10, 14), (15, 19), (20, 24))
    hosts = {0: here, 1: here, 2: "node2", 3: "node2"}
    assert rows == sorted((hosts[rank], rank, *block) for rank in hosts for block in blocks)


def test_the_successor_of_a_killed_writer_finds_the_neighbours_again(tmp_path: Path) -> None:
    with nodes(tmp_path, range(0, 2)) as (node,):
        for rank in (1, 0):
            node.tell(rank, "begin")
            node.tell(rank, "put", 4)
        wait_for("both ranks", lambda: known_ranks(tmp_path) == [0, 1])
        (writer,) = node.companions(WRITER)
        writer.kill()
        wait_for("both ranks again", lambda: known_ranks(tmp_path) == [0, 0, 1, 1])
        for rank in (1, 0):
            node.tell(rank, "put", 9)
            node.tell(rank, "close")
    assert [record.memory_peak_bytes for record in kept(tmp_path, RanksRecord)][-1] == [1 * GB, 2 * GB]
    assert [event.name for event in kept(tmp_path, EventRecord)] == ["failure"]
    rows = [row[2:5] for row in EveryRank(open_session(tmp_path)).rows()]
    assert {*rows} >= {(0, 5, 9), (1, 5, 9)} and len(rows) == len({*rows}), "each once"


def test_trainings_of_one_process_that_end_before_their_writers_have_begun_lack_no_rank(
    tmp_path: Path,
) -> None:
    pids = []
    with nodes(tmp_path, range(0, 3)) as (node,):
        for last in (10, 20):
            pids.append([pid_of(node.tell(rank, "begin")) for rank in (0, 1, 2)])
            for word in (("put", last), ("close",)):
                for rank in (1, 2, 0):
                    node.tell(rank, *word)
    assert pids_kept(tmp_path) == pids
    for path in tmp_path.glob("perf_records_*.jsonl"):
        last = [json.loads(line) for line in path.read_text().splitlines() if '"kind":"ranks"' in line][-1]
        assert (last["silent"], last["memory_peak_bytes"]) == ([], [1 * GB, 2 * GB, 3 * GB])


@pytest.mark.parametrize("other", ["job", "start of this job"])
def test_ranks_of_another_that_live_beside_it_are_never_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    directories = (tmp_path / "a", tmp_path / "b") if other == "job" else (tmp_path, tmp_path)
    pids: list[list[int]] = []
    with nodes(directories[0], range(0, 2)) as (first,):
        pids.append([pid_of(first.tell(rank, "begin")) for rank in (0, 1)])
        wait_for("both ranks", lambda: pids_kept(tmp_path) == pids)
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1" if other != "job" else "0")
        with nodes(directories[1], range(0, 2)) as (second,):
            pids.append([pid_of(second.tell(0, "begin"))])
            wait_for("rank 0 alone", lambda: pids_kept(tmp_path) == pids)
            pids[1].append(pid_of(second.tell(1, "begin")))
            wait_for("its own rank 1", lambda: pids_kept(tmp_path) == pids)
            for node in (first, second):
                for rank in (1, 0):
                    node.tell(rank, "put", 4)
                    node.tell(rank, "close")
    assert pids_kept(tmp_path) == pids


def pids_kept(directory: Path) -> list[list[int]]:
    """Of each run file below the directory, the oldest first: the processes of its ranks, by rank."""
    found = []
    for path in sorted(directory.rglob("perf_records_*.jsonl")):
        records = [
            json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")
        ]
        pairs = [
            pair
            for node in records
            if node["kind"] == "node"
            for pair in zip(node["ranks"], node["pids"], strict=True)
        ]
        found.append([pid for _, pid in sorted(pairs)])
    return found


def test_ranks_that_cannot_be_found_hinder_nothing(tmp_path: Path) -> None:
    with nodes(tmp_path, range(0, 1), range(1, 2)) as (first, second):
        pid_of(first.tell(0, "begin"))
        first.tell(0, "put", 20)
        wait_for("rank 0", lambda: known_ranks(tmp_path) == [0])
        assert second.tell(1, "put", 3), "it never begins"
        first.tell(0, "close")
    assert ended_summary(tmp_path)["totals"]["train_steps"] == 20
