"""Slow data and slow checkpoints in real runs: each is told apart from the other and from training."""

from pathlib import Path

import pytest

from tests.processes import flagscale as fs

pytestmark = [pytest.mark.host, pytest.mark.alone]

ITERATIONS, SAMPLES = 7, 4
SAMPLE_S, CHECKPOINT_S = 0.05, 2
SCRIPT = Path(__file__).with_name("slowed_parts.py")


def train(tmp_path, plants):
    script = [
        SCRIPT,
        plants,
        fs.train_gpt(),
        *fs.TINY,
        "--num-workers",
        0,
        "--train-iters",
        ITERATIONS,
    ]
    checkpoints = ["--save", tmp_path / "ckpt", "--save-interval", 3, "--ckpt-format", "torch"]
    monitor = [
        "--enable-perf-monitor",
        "--perf-breakdown",
        "--perf-max-overhead",
        100,
        "--perf-log-dir",
        "perf",
    ]
    finished = fs.run(fs.workers(1, *fs.launched(*map(str, [*script, *checkpoints, *monitor]))), tmp_path)
    assert finished.returncode == 0, finished.output[-3000:]
    summary = fs.summary(tmp_path / "perf")
    goodput = summary["goodput"]
    print({name: round(value, 4) for name, value in goodput.items()})
    parts = [value for name, value in goodput.items() if name not in ("wall_s", "ettr")]
    assert sum(parts) == pytest.approx(goodput["wall_s"])
    return summary


def test_a_slow_data_loader_is_data_loading_and_a_data_stall(tmp_path):
    summary = train(tmp_path, f"sample:{SAMPLE_S}")
    share, goodput = summary["phases"]["share"], summary["goodput"]
    assert share["data_loading"] > 0.5
    assert share["data_loading"] == max(value for value in share.values() if value is not None)
    assert goodput["data_stall_s"] >= (ITERATIONS - 1) * SAMPLES * SAMPLE_S
    assert goodput["data_stall_s"] > goodput["productive_s"] / 2
    assert goodput["checkpoint_s"] < goodput["data_stall_s"]


def test_a_slow_checkpoint_is_checkpoint_time_and_no_iterations(tmp_path):
    summary = train(tmp_path, f"checkpoint:{CHECKPOINT_S}")
    goodput = summary["goodput"]
    steps = fs.records(tmp_path / "perf")
    saving = [step for step in steps if step["checkpoint_ns"] > step["iteration_ns"]]
    assert [step["iteration"] for step in saving] == [3, 6]
    assert goodput["checkpoint_s"] >= 2 * CHECKPOINT_S
    assert goodput["checkpoint_s"] > goodput["productive_s"]
    assert summary["phases"]["share"]["data_loading"] < 0.5
    assert goodput["data_stall_s"] < goodput["productive_s"]
