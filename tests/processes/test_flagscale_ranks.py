"""Every rank of real runs in rank 0's run file: one that is killed is told. A slow one is planted in
`test_flagscale_findings.py`.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from flagscale_perf.perf_logger import WRITER
from tests.processes import flagscale as fs
from tests.processes import padded_stages

pytestmark = pytest.mark.host

RANKS = 2
MONITOR = ["--enable-perf-monitor", "--perf-breakdown", "--perf-log-interval", 5, "--perf-log-dir", "perf"]


def command(iterations: int, *more: str) -> list[str]:
    script = [
        padded_stages.__file__,
        fs.train_gpt(),
        *fs.SMALL,
        "--vocab-size",
        4200,
        "--train-iters",
        iterations,
        *more,
    ]
    return fs.workers(RANKS, *fs.launched(*map(str, [*script, *MONITOR])))


@pytest.mark.parametrize("is_late", [False, True], ids=["writer at work", "writer held up"])
def test_a_rank_that_is_killed_is_told(is_late: bool, tmp_path: Path) -> None:
    """Also where its writer looks only when the launcher has ended rank 0, too."""
    process = fs.start(command(1000), tmp_path)
    read = fs.read_until(process, 8)

    def pids() -> list[int]:
        """The ranks' processes as far as they have been found, rank 0's first."""
        nodes = fs.records(tmp_path / "perf", "node")
        return [pid for node in nodes for pid in node["pids"]]

    fs.wait_until(lambda: len(pids()) == RANKS, "rank 1")
    first, killed = pids()
    (writer,) = (each for each in psutil.Process(first).children() if WRITER in each.cmdline())
    if is_late:
        writer.suspend()
    os.kill(killed, signal.SIGKILL)
    finished = fs.finish(process, read)
    if is_late:
        writer.resume()
    assert finished.returncode != 0
    told = f"rank 1 ({os.uname().nodename}, CPU (rehearsal), pid {killed}) is gone after iteration "
    fs.wait_until(
        lambda: any(event["text"].startswith(told) for event in fs.records(tmp_path / "perf", "event")),
        "its death",
    )
