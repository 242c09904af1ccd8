"""A job that is really stopped and goes on, and jobs that are busy or slow."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flagscale_perf.store.decoder import decode
from flagscale_perf.training.records import IntervalRecord, StandstillRecord, StepRecord
from tests.processes.trainer import REPO, wait_for

STOOD_S = 3.0
TRAINING = """
import sys, time
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.perf_logger import PerfLogger
from tests.fakes import make_facts, make_step

directory, steps, slow = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
config = PerfConfig(enable_perf_monitor=True, perf_log_dir=directory)
logger = PerfLogger.start(config, make_facts(process_start_ns=time.monotonic_ns()), print)
start_ns = time.monotonic_ns()
for iteration in range(1, steps + 1):
    until_s = time.monotonic() + (3 if iteration == slow else 0.03)
    while time.monotonic() < until_s:
        if iteration != slow:
            sum(range(1000))
        else:
            time.sleep(0.1)
    end_ns = time.monotonic_ns()
    took = {"iteration_ns": end_ns - start_ns, "train_step_ns": end_ns - start_ns, "device_ns": None}
    logger.step(make_step(iteration, start_ns=start_ns, **took))
    start_ns = end_ns
    print(iteration, flush=True)
logger.close("completed", 60)
"""


def started(directory: Path, steps: int, slow: int = 0) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", TRAINING, str(directory), str(steps), str(slow)]
    environment = os.environ | {"PYTHONPATH": str(REPO)}
    return subprocess.Popen(words, cwd=REPO, env=environment, stdout=subprocess.PIPE, text=True)


def records_in(directory: Path) -> list[object]:
    (path,) = directory.glob("perf_records_*.jsonl")
    return [decode(line) for line in path.read_bytes().splitlines(keepends=True)]


def come_to(process: subprocess.Popen[str], iteration: int) -> None:
    assert process.stdout is not None
    while process.stdout.readline() != f"{iteration}\n":
        pass


@pytest.mark.parametrize("with_writer", [False, True])
def test_what_a_stopped_job_stood_still_is_in_no_rate(tmp_path: Path, with_writer: bool) -> None:
    process = started(tmp_path, 120)
    come_to(process, 40)
    wait_for("a run file", lambda: list(tmp_path.glob("perf_records_*.jsonl")))
    everything = [process.pid]
    if with_writer:
        everything += [child.pid for child in psutil.Process(process.pid).children()]
    time.sleep(1)  # the writer is at work
    for pid in everything:
        os.kill(pid, signal.SIGSTOP)
    before_s = time.monotonic()
    time.sleep(STOOD_S)
    for pid in everything:
        os.kill(pid, signal.SIGCONT)
    longest_s = time.monotonic() - before_s
    process.communicate(timeout=300)
    records = records_in(tmp_path)
    (stretch,) = [each for each in records if isinstance(each, StandstillRecord)]
    assert stretch.with_writer == with_writer
    assert STOOD_S - 0.5 <= stretch.stood_ns / 1e9 <= longest_s + 0.5
    steps = [each for each in records if isinstance(each, StepRecord)]
    (touched,) = [step for step in steps[1:] if step.warmup]
    assert touched.start_ns <= stretch.start_ns + 100_000_000
    assert touched.iteration_ns < stretch.stood_ns / 2
    usual_ns = statistics.median(step.iteration_ns for step in steps)
    rated = [each for each in records if isinstance(each, IntervalRecord) and not each.warmup_only]
    assert sum(interval.steps for interval in rated) == 119 - (steps[0].warmup == 1)
    assert all(interval.iteration_ns < 10 * usual_ns + stretch.stood_ns / 2 for interval in rated)
    report = subprocess.run(
        [sys.executable, "-m", "flagscale_perf", "report", str(tmp_path)],
        cwd=REPO, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "The job stood still for " in report.stdout


def test_a_busy_run_and_a_slow_step_stand_not_still(tmp_path: Path) -> None:
    process = started(tmp_path, 60, slow=30)
    process.communicate(timeout=300)
    records = records_in(tmp_path)
    assert not [each for each in records if isinstance(each, StandstillRecord)]
    steps = [each for each in records if isinstance(each, StepRecord)]
    assert max(step.iteration_ns for step in steps) >= 3_000_000_000
