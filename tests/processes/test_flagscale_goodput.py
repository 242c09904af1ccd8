"""A real training killed after a checkpoint and started again: what it did twice is found, and every second
is in one class.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from flagscale_perf.analysis.job import Job
from flagscale_perf.training.analysis.history import stitch
from tests.processes import flagscale as fs

pytestmark = pytest.mark.host

EVERY = 20  # iterations between two checkpoints: far more than go by between a line of the log and the kill
LAST = 25


def command(tmp_path, *more):
    checkpoints = [
        "--save",
        tmp_path / "ckpt",
        "--load",
        tmp_path / "ckpt",
        "--save-interval",
        str(EVERY),
        "--ckpt-format",
        "torch",
    ]
    monitor = ["--enable-perf-monitor", "--perf-log-interval", "2", "--perf-log-dir", tmp_path / "perf"]
    script = [fs.train_gpt(), *fs.SMALL, "--train-iters", "3000", *checkpoints, *monitor, *more]
    return fs.workers(1, *fs.launched(*script))


def saved(tmp_path):
    return int((tmp_path / "ckpt" / "latest_checkpointed_iteration.txt").read_text())


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """Directory of the monitor's files, and the iteration the second session went on from."""
    tmp_path = tmp_path_factory.mktemp("experiment")
    process = fs.start(command(tmp_path), tmp_path)
    output = fs.read_until(process, iteration=EVERY + 2)
    process.kill()
    fs.finish(process, output)
    fs.wait_until(lambda: bool(fs.records(tmp_path / "perf", "end")), "the first session's end")
    resumed = saved(tmp_path)
    again = fs.run(command(tmp_path, "--exit-interval", str(LAST)), tmp_path)
    assert again.returncode == 0, again.output[-3000:]
    return tmp_path / "perf", resumed


def rows_of(path, kind):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in rows if row["kind"] == kind]


def test_what_was_done_twice_is_found(experiment):
    directory, resumed = experiment
    first, second = stitch(Job(directory).sessions()).sessions
    first_file, second_file = sorted(directory.glob("perf_records_*.jsonl"))
    redone = [step for step in rows_of(first_file, "step") if step["iteration"] > resumed]
    assert len(redone) >= 1
    assert (first.end_reason, second.end_reason) == ("killed", "completed")
    assert (first.first_iteration, second.first_iteration, second.last_iteration) == (1, resumed + 1, LAST)
    assert (first.redone, second.redone) == (len(redone), 0)
    assert first.goodput.lost_ns == sum(step["iteration_ns"] for step in redone)
    assert second.goodput.lost_ns == 0


def test_every_nanosecond_is_in_one_class(experiment):
    directory, _ = experiment
    history = stitch(Job(directory).sessions())
    total = history.goodput
    parts = (
        total.startup_ns,
        total.productive_ns,
        total.evaluation_ns,
        total.checkpoint_ns,
        total.lost_ns,
        total.idle_ns,
    )
    assert sum(parts) == total.wall_ns
    assert min(parts) >= 0
    first_file, second_file = sorted(directory.glob("perf_records_*.jsonl"))
    (first_header,), (second_end,) = rows_of(first_file, "header"), rows_of(second_file, "end")
    began_ns = (
        first_header["start_wall_ns"]
        - first_header["start_mono_ns"]
        + first_header["facts"]["process_start_ns"]
    )
    assert total.wall_ns == second_end["end_wall_ns"] - began_ns
    steps = [row for path in (first_file, second_file) for row in rows_of(path, "step")]
    assert total.checkpoint_ns == sum(step["checkpoint_ns"] for step in steps) > 0
    assert total.startup_ns > first_header["start_mono_ns"] - first_header["facts"]["process_start_ns"] > 0


def test_the_command_tells_it(experiment):
    directory, _ = experiment
    words = [sys.executable, "-m", "flagscale_perf", "report", str(directory), "--all-sessions"]
    done = subprocess.run(words, env=fs.environment(), capture_output=True, text=True, timeout=fs.DEADLINE_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 sessions in ")
    assert "of them done again later\n" in done.stdout


def test_a_run_without_a_device_says_so(experiment):
    directory, _ = experiment
    for path in directory.glob("perf_summary_*.json"):
        summary = json.loads(path.read_text())
        assert set(summary["hardware"].values()) == {None}
        assert fs.NO_COUNTERS in summary["run_facts"]["missing"]
