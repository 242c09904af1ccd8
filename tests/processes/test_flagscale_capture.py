"""Raw marks of every rank of a real run, by the option and by the command, and what that changes of the run:
nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flagscale_perf.spine.jsonl import decode
from flagscale_perf.training.capture import unpacked
from flagscale_perf.training.marks import own_times
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.records import CapturedRecord
from tests.processes import flagscale as fs

pytestmark = pytest.mark.host

RANKS, ITERATIONS = 2, 150
PIPELINE = ["--pipeline-model-parallel-size", "2", "--vocab-size", "4200", "--train-iters", str(ITERATIONS)]
MONITOR = ["--enable-perf-monitor", "--perf-breakdown", "--perf-log-dir", "perf"]


def command(*more: str) -> list[str]:
    return fs.workers(RANKS, *fs.launched(fs.train_gpt(), *fs.TINY, *PIPELINE, *more))


def test_a_window_of_all_ranks_marks_with_the_host_s_timers(tmp_path: Path) -> None:
    plain = fs.run(command(), tmp_path)
    captured = fs.run(command(*MONITOR, "--perf-capture-steps", "5"), tmp_path)
    assert (plain.returncode, captured.returncode) == (0, 0), captured.output[-3000:]
    assert captured.lines == plain.lines, "losses and norms, to the last digit"
    (window,) = fs.records(tmp_path / "perf", "capture")
    first = window["first_iteration"]
    assert window["iteration"] == first + 4
    steps = [step_of(content) for content in fs.records(tmp_path / "perf", "captured")]
    expected = [(rank, iteration) for rank in range(RANKS) for iteration in range(first, first + 5)]
    assert sorted((step.rank, step.iteration) for step in steps) == expected
    sent = [
        {window["timers"][code >> 1] for code in step.marks[::2]} & {"forward-send", "backward-send"}
        for step in steps
    ]
    assert {step.rank: names for step, names in zip(steps, sent, strict=True)} == {
        0: {"forward-send"},
        1: {"backward-send"},
    }
    # Rank 0's marks give the phases that are in the file anyway.
    for phases in fs.records(tmp_path / "perf", "phases"):
        for step in steps:
            if step.rank == 0 and step.iteration == phases["iteration"]:
                own = own_times(unpacked(step), step.start_ns, step.start_ns + step.train_step_ns)
                assert own[PHASES.index("forward")] == phases["forward_ns"]


def test_a_live_run_is_asked_for_three_steps_more(tmp_path: Path) -> None:
    asked = [sys.executable, "-m", "flagscale_perf", "capture", "perf", "--steps", "3"]
    # Long enough that the command comes in time on a busy machine, too.
    process = fs.start(command(*MONITOR, "--perf-max-overhead", "100", "--train-iters", "400"), tmp_path)
    read = fs.read_until(process, 5)
    deadline_s = time.monotonic() + fs.DEADLINE_S  # a busy machine starts the writer process late
    while not any(file.stat().st_size for file in (tmp_path / "perf").glob("perf_records_*.jsonl")):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    answer = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, timeout=fs.DEADLINE_S)
    finished = fs.finish(process, read)
    assert (answer.returncode, answer.stderr) == (0, "")
    (window,) = fs.records(tmp_path / "perf", "capture")
    (run_file,) = (tmp_path / "perf").glob("perf_records_*.jsonl")
    first, last = window["first_iteration"], window["iteration"]
    shown = (
        f"iterations {first} to {last} of every rank are captured into perf/{run_file.name} when they come\n"
    )
    assert (answer.stdout, answer.stderr, last) == (shown, "", first + 2)
    assert finished.returncode == 0, finished.output[-3000:]
    kept = sorted((each["rank"], each["iteration"]) for each in fs.records(tmp_path / "perf", "captured"))
    assert kept == [(rank, iteration) for rank in range(RANKS) for iteration in range(first, last + 1)]
    again = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, timeout=fs.DEADLINE_S)
    assert (again.returncode, again.stderr.split(" '")[0]) == (2, "no training writes")
    assert not list((tmp_path / "perf").glob("perf_capture_*"))


def step_of(content: dict) -> CapturedRecord:
    record = decode(json.dumps(content).encode())
    assert isinstance(record, CapturedRecord)
    return record
