"""Bandwidth tests with real ranks: what is slow is named, and what is interrupted is kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.bench.analysis.bandwidth import slow_parts
from flagscale_perf.bench.analysis.source import read_bench
from flagscale_perf.bench.bandwidth import ranks
from flagscale_perf.bench.bandwidth.job import Job
from flagscale_perf.bench.ports import free_port
from flagscale_perf.bench.recording import Clock
from tests.bench_runs import book_in
from tests.processes.flagscale import wait_until
from tests.warm_ranks import POINTS_TO_STDOUT, make_python_warm

JOB = Job(3, "gloo", (), (1024,), (4096,), 3, 0.002, 1 << 16)
REPO = Path(__file__).parents[2]
WAIT_S = 120


@pytest.mark.parametrize(
    ("slow", "says"),
    [
        ("1", "rank 1 is slow: its fastest link takes"),
        ("0-2", "the link between rank 0 and rank 2 takes"),
    ],
    ids=["a rank", "a link"],
)
def test_what_is_slow_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: str, says: str) -> None:
    """100 ms late, where a message takes less than one. A busy machine may make another link slow, too."""
    monkeypatch.setenv("SLOW", slow)
    make_python_warm(tmp_path, monkeypatch, POINTS_TO_STDOUT)
    with book_in(tmp_path) as book, book.part("bandwidth", JOB.planned, {}) as part:
        for point in ranks.run(JOB, free_port(), module="tests.slow_ranks"):
            if point.case["op"] == "send_recv":  # a copy of 64 KB may well be disturbed on a busy machine
                part.point("time", "s", point.case, point.samples, Clock(point.start_ns, point.dur_ns))
    found = slow_parts(read_bench(open_session(book.path)).parts["bandwidth"])
    named = [one for one in found if one.text.startswith(says)]
    assert len(named) == 1, found
    assert named[0].times > 2


def test_an_interrupted_test_keeps_its_points_and_leaves_no_rank(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flagscale_perf", "bench", "bandwidth", "-o", str(tmp_path)]
    process = subprocess.Popen(
        [*command, "--max-size", "64K"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPO
    )
    try:
        path = _with_a_point(tmp_path, process)
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=WAIT_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 130
    assert err.splitlines()[1:] == ["interrupted: what was measured is kept, and marked as partial"]
    found = read_bench(open_session(path))
    part = found.parts["bandwidth"]
    assert (found.state, part.state) == ("interrupted", "partial: interrupted")
    assert 0 < len(part.points) < (part.planned or 0)
    assert "bandwidth is partial: interrupted" in out
    assert (tmp_path / "plots/performance_report.md").is_file()


def test_ranks_end_with_who_started_them_however_that_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flagscale_perf", "bench", "bandwidth", "-o", str(tmp_path)]
    process = subprocess.Popen([*command, "--max-size", "64K"], stdout=subprocess.DEVNULL, cwd=REPO)
    try:
        _with_a_point(tmp_path, process)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    finally:
        process.kill()
        process.wait()
    assert len(children) >= 2
    wait_until(lambda: not any(map(_is_running, children)), "the ranks' end")


def _is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _with_a_point(directory: Path, process: subprocess.Popen[str]) -> Path:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline and process.poll() is None:
        for path in directory.glob("perf_records_*.jsonl"):
            if b"bench_point" in path.read_bytes():
                return path
        time.sleep(0.05)
    pytest.fail(f"no point was measured: {process.communicate()}")
