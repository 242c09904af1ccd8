"""Every way a FlagScale run ends: what was finished is in the files, and the exit code is the host's own."""

import os
import signal
from pathlib import Path

import pytest

from tests.processes import flagscale as fs
from tests.warm_ranks import torchrun_environment

pytestmark = pytest.mark.host

MONITOR = ["--enable-perf-monitor", "--perf-log-interval", "2", "--perf-log-dir", "perf"]
LONG = [*fs.SMALL, "--train-iters", "3000"]


def worker(*arguments: str | Path) -> list[str]:
    """One rank without torchrun, so that the exit code is the worker's own."""
    return fs.workers(1, *fs.launched(*arguments, *MONITOR))


def assert_kept(tmp_path, finished, reason):
    """Every iteration the host printed, but at most the last, is recorded, in order; the summary says how it
    ended.
    """
    steps = [step["iteration"] for step in fs.records(tmp_path / "perf")]
    printed = [line.iteration for line in finished.logged]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) >= len(printed) - 1 > 0
    summary = fs.summary(tmp_path / "perf")
    assert summary["session_info"]["end_reason"] == reason
    assert summary["session_info"]["total_iterations"] == len(steps)
    assert fs.records(tmp_path / "perf", "end")[0]["reason"] == reason


def test_a_planned_exit(tmp_path):
    finished = fs.run(worker(fs.train_gpt(), *LONG, "--exit-interval", "5"), tmp_path)
    assert finished.returncode == 0
    assert len(fs.records(tmp_path / "perf")) == 5
    assert_kept(tmp_path, finished, "completed")


CRASH = """
import runpy, sys, torch
calls = 0
def step(self, *args, _original=torch.optim.AdamW.step, **kwargs):
    global calls
    calls += 1
    if calls == 6:
        raise ValueError("planted in the optimizer")
    return _original(self, *args, **kwargs)
torch.optim.AdamW.step = step
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_an_exception_in_a_step(tmp_path):
    (tmp_path / "crash.py").write_text(CRASH)
    finished = fs.run(worker("crash.py", fs.train_gpt(), *LONG), tmp_path)
    assert finished.returncode == 1
    assert finished.output.count("ValueError: planted in the optimizer") == 1
    assert len(fs.records(tmp_path / "perf")) == 5
    assert_kept(tmp_path, finished, "exception ValueError")


@pytest.mark.parametrize(
    ("number", "arguments", "returncode", "reason"),
    [
        (signal.SIGINT, [], -signal.SIGINT, "interrupted"),
        (signal.SIGTERM, ["--exit-signal-handler"], 0, "completed"),
        (signal.SIGTERM, [], -signal.SIGTERM, "killed"),
        (signal.SIGKILL, [], -signal.SIGKILL, "killed"),
    ],
    ids=["SIGINT", "SIGTERM handled", "SIGTERM", "SIGKILL"],
)
def test_a_signal_to_the_worker(number, arguments, returncode, reason, tmp_path):
    process = fs.start(worker(fs.train_gpt(), *LONG, *arguments), tmp_path)
    output = fs.read_until(process, iteration=5)
    os.kill(process.pid, number)
    finished = fs.finish(process, output)
    assert finished.returncode == returncode, finished.output[-3000:]
    wait_for_summary(tmp_path / "perf", reason)
    assert_kept(tmp_path, finished, reason)


def test_sigterm_to_the_torchrun_agent(tmp_path):
    command = fs.torchrun(1, *fs.launched(fs.train_gpt(), *LONG, *MONITOR))
    process = fs.start(command, tmp_path, **torchrun_environment(tmp_path, fs.environment()["PYTHONPATH"]))
    output = fs.read_until(process, iteration=5)
    os.kill(process.pid, signal.SIGTERM)
    finished = fs.finish(process, output)
    assert finished.returncode != 0
    wait_for_summary(tmp_path / "perf", "killed")
    assert_kept(tmp_path, finished, "killed")


def wait_for_summary(directory, reason):
    """The writer outlives a killed worker by seconds: wait for the last thing it writes, not for a time."""
    fs.wait_until(lambda: has_ended(directory), f"the summary of a run that has ended ({reason})")


def has_ended(directory):
    if not fs.records(directory, "end"):
        return False
    return fs.summary(directory)["session_info"]["end_reason"] != "running"
