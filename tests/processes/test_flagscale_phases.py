"""Phases of real runs whose times are known because the test made them."""

from pathlib import Path

import pytest

from tests.processes import flagscale as fs
from tests.processes import padded_stages

pytestmark = [pytest.mark.host, pytest.mark.alone]

SLOWED_PARTS = Path(__file__).with_name("slowed_parts.py")
STAGES, MICROBATCHES, ITERATIONS = 2, 4, 6


def train(tmp_path, plants=""):
    """A run whose stages sleep, and parts of it in addition."""
    script = [
        SLOWED_PARTS,
        plants,
        padded_stages.__file__,
        fs.train_gpt(),
        *fs.TINY,
        "--global-batch-size",
        2 * MICROBATCHES,
        "--train-iters",
        ITERATIONS,
    ]
    parallel = [
        "--pipeline-model-parallel-size",
        STAGES,
        "--vocab-size",
        4200,
    ]  # the loss is the last stage's alone
    monitor = [
        "--enable-perf-monitor",
        "--perf-breakdown",
        "--perf-log-interval",
        3,
        "--perf-log-dir",
        "perf",
    ]
    finished = fs.run(fs.workers(STAGES, *fs.launched(*map(str, [*script, *parallel, *monitor]))), tmp_path)
    assert finished.returncode == 0, finished.output[-3000:]
    return fs.summary(tmp_path / "perf")


def test_an_even_pipeline_of_padded_stages_has_the_bubble_of_its_schedule(tmp_path):
    summary = train(tmp_path)
    phases, bubble = summary["phases"], summary["bubble"]
    print({name: round(value, 4) for name, value in (phases["share"] | bubble).items() if value is not None})
    assert phases["steps"] == ITERATIONS - 1
    # (p - 1) / (m + p - 1) of the pipeline's time, within two points
    assert bubble["bubble_share_of_pipeline"] == pytest.approx(
        (STAGES - 1) / (MICROBATCHES + STAGES - 1), abs=0.02
    )
    steps = phases["steps"] * MICROBATCHES
    assert phases["total_s"]["forward"] >= steps * padded_stages.FORWARD_S
    assert phases["total_s"]["backward"] >= steps * padded_stages.BACKWARD_S
    assert sum(value for value in phases["share"].values() if value is not None) == pytest.approx(1)
    intervals = fs.records(tmp_path / "perf", "interval")
    for interval in intervals:
        assert interval["bubble_ns"] + interval["imbalance_ns"] == interval["phases_ns"]["pipeline_recv_wait"]
    assert sum(interval["bubble_ns"] for interval in intervals) / 1e9 == pytest.approx(bubble["bubble_s"])
    (log,) = Path(tmp_path / "perf").glob("perf_metrics_*.log")
    assert "Pipe%" in log.read_text()


OWN_S = padded_stages.FORWARD_S + padded_stages.BACKWARD_S  # of an even stage and micro-batch
EXCESS_S = OWN_S / 2  # of a slow one


def test_a_slow_last_stage_is_imbalance_and_no_bubble(tmp_path):
    bubble = train(tmp_path, f"backward:{EXCESS_S}:calls:1")["bubble"]
    print({name: round(value, 4) for name, value in bubble.items()})
    # From its first forward to its last backward rank 0 sees all of the last stage's micro-batches go by.
    whole = OWN_S + MICROBATCHES * (OWN_S + EXCESS_S)
    assert bubble["bubble_share"] == pytest.approx(OWN_S / whole, abs=0.03)
    assert bubble["imbalance_share"] == pytest.approx(MICROBATCHES * EXCESS_S / whole, abs=0.03)


def test_a_slow_first_stage_waits_for_nobody(tmp_path):
    bubble = train(tmp_path, f"backward:{EXCESS_S}:calls:0")["bubble"]
    print({name: round(value, 4) for name, value in bubble.items()})
    # Only for the last stage's first micro-batch, less its own second forward; from then on the last stage
    # waits.
    wait = OWN_S - padded_stages.FORWARD_S
    assert bubble["bubble_share"] == pytest.approx(
        wait / (MICROBATCHES * (OWN_S + EXCESS_S) + wait), abs=0.03
    )
    assert bubble["imbalance_share"] == pytest.approx(0, abs=0.03)
