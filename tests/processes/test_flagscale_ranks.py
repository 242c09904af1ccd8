"""Every rank of real runs in rank 0's run file: the slow one named with its phase, the killed one told."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.processes import flagscale as fs
from tests.processes import padded_stages

pytestmark = [pytest.mark.host, pytest.mark.alone]

RANKS = 2
MONITOR = ["--enable-perf-monitor", "--perf-breakdown", "--perf-log-interval", 5, "--perf-log-dir", "perf"]


def command(iterations: int, *more: str) -> list[str]:
    script = [
        padded_stages.__file__,
        fs.train_gpt(),
        *fs.TINY,
        "--vocab-size",
        4200,
        "--train-iters",
        iterations,
        *more,
    ]
    return fs.workers(RANKS, *fs.launched(*map(str, [*script, *MONITOR])))


def test_a_rank_that_is_slow_in_its_forward_pass_is_named(tmp_path: Path) -> None:
    finished = fs.run(command(30), tmp_path, SLOW_RANK="1")
    assert finished.returncode == 0, finished.output[-3000:]
    named, *_ = fs.records(tmp_path / "perf", "straggler")
    assert (named["ranks"], named["phase"], named["against"], named["is_over"]) == (
        [1],
        "forward",
        "peers",
        False,
    )
    assert (
        named["iteration"] <= 24
    )  # 20 steps from iteration 5 on; the block of the warm-up, 1 to 4, tells nothing
    assert named["excess_ns"] == pytest.approx(padded_stages.EXCESS_S * 1e9, rel=0.3)
    assert {stragglers["ranks"][0] for stragglers in fs.records(tmp_path / "perf", "straggler")} == {1}
    nodes = fs.records(tmp_path / "perf", "node")
    assert sorted(rank for node in nodes for rank in node["ranks"]) == [0, 1]
    assert len({pid for node in nodes for pid in node["pids"]}) == RANKS
    ranks = fs.records(tmp_path / "perf", "ranks")[-1]
    assert (len(ranks["work_ns"]), ranks["silent"]) == (RANKS, [])
    # Rank 0 waits for as long as rank 1 works longer.
    assert ranks["work_ns"][1] - ranks["work_ns"][0] == pytest.approx(padded_stages.EXCESS_S * 1e9, rel=0.3)
    assert ranks["wait_ns"][0] - ranks["wait_ns"][1] == pytest.approx(padded_stages.EXCESS_S * 1e9, rel=0.3)


def test_a_rank_that_is_killed_is_told(tmp_path: Path) -> None:
    process = fs.start(command(1000), tmp_path)
    read = fs.read_until(process, 8)

    def other() -> list[int]:
        """The process of rank 1, once it has been found."""
        nodes = fs.records(tmp_path / "perf", "node")
        return [pid for node in nodes for rank, pid in zip(node["ranks"], node["pids"], strict=True) if rank]

    fs.wait_until(lambda: len(other()) == 1, "rank 1")
    (killed,) = other()
    os.kill(killed, signal.SIGKILL)
    finished = fs.finish(process, read)
    assert finished.returncode != 0
    told = f"rank 1 ({os.uname().nodename}, CPU (rehearsal), pid {killed}) is gone after iteration "
    fs.wait_until(
        lambda: any(event["text"].startswith(told) for event in fs.records(tmp_path / "perf", "event")),
        "its death",
    )
