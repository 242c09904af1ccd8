"""`profile watch` over a real experiment: a slow copy is named, and Ctrl-C keeps what there is."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
WAIT_S = 300
# Read by every Python at its start; a rank finds its copies late from the second run on.
LATE = """
import os, sys, time
if "flagscale_perf.bench.bandwidth.rank" in sys.orig_argv and os.path.isdir(os.environ["LATE_AFTER"]):
    from flagscale_perf.bench.bandwidth import local
    plain = local.MEMORY["copy"]
    def late(world, count):
        run = plain.make(world, count)
        return lambda: (time.sleep(0.5), run())
    local.MEMORY["copy"] = local.Local(plain.times, late)
"""


def watch(directory: Path) -> subprocess.Popen[str]:
    (directory / "late").mkdir()
    (directory / "late/sitecustomize.py").write_text(LATE)
    path = os.pathsep.join([str(directory / "late"), str(REPO)])
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "flagscale_perf",
            "profile",
            "watch",
            "--every",
            "1s",
            "--baseline",
            str(directory / "base"),
            "--dir",
            str(directory / "runs"),
            "--baseline-runs",
            "1",
            "--",
            "bench",
            "bandwidth",
            "--quick",
            "--ranks",
            "1",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=REPO,
        env=os.environ | {"PYTHONPATH": path, "LATE_AFTER": str(directory / "runs")},
    )


def test_a_planted_slowdown_is_named_and_an_interrupted_run_is_kept(tmp_path: Path) -> None:
    """A copy takes 0.5 s longer from the second run on, instead of hundredths; the third is interrupted."""
    process = watch(tmp_path)
    try:
        assert process.stdout is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        interrupt_a_run(process, tmp_path / "runs", second.partition(":")[0])
        rest, _ = process.communicate(timeout=WAIT_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert first.endswith(f"1 of 1 runs of the baseline, {tmp_path}/base/{first.partition(':')[0]}\n")
    assert (
        ", slower, most in bandwidth, copy; noise of 4.0 % is assumed: a baseline shows its own from 3"
        in second
    )
    stopped, end = rest.splitlines()
    name = stopped.partition(":")[0]
    kept = tmp_path / "runs" / f"failed_{name}"
    assert stopped == f"{name}: stopped; what it wrote is in {kept}"
    assert end == f"stopped by Ctrl-C; runs so far: 3, each a line of {tmp_path}/runs/history.csv"
    assert process.returncode == 130
    assert len(list(kept.glob("perf_records_*.jsonl"))) == 1
    with open(tmp_path / "runs/history.csv", encoding="utf-8") as file:
        assert [row["outcome"] for row in csv.DictReader(file)] == ["baseline", "slower", "stopped"]


def interrupt_a_run(process: subprocess.Popen[str], directory: Path, before: str) -> None:
    """As soon as the run after that one has a file."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline and process.poll() is None:
        if any(path.parent.name > before for path in directory.glob("run_*/perf_records_*.jsonl")):
            process.send_signal(signal.SIGINT)
            return
        time.sleep(0.05)
    pytest.fail(f"no third run began: {process.poll()}")
