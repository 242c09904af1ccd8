"""Real runs with one planted cause: it is the first finding, and what removing it would gain is what was
planted.
"""

import statistics
from pathlib import Path

import pytest

from flagscale_perf.analysis.rules import Finding
from flagscale_perf.training.analysis.fold import read_report
from tests.processes import flagscale as fs
from tests.processes import padded_stages

pytestmark = [pytest.mark.host, pytest.mark.alone]

SLOWED_PARTS = Path(__file__).with_name("slowed_parts.py")
ITERATIONS, SAMPLES = 26, 4
SAMPLE_S, CHECKPOINT_S, EXCESS_S, START_S = 0.025, 2, 0.08, 2.0
PADS = {"PADDED_FORWARD_S": "0.01", "PADDED_BACKWARD_S": "0.03"}


def train(tmp_path: Path, plants: str, *more: object, ranks: int = 1, **env: str) -> Finding:
    """The first finding of a run in which parts sleep."""
    padded = [padded_stages.__file__] if env else []
    script = [
        SLOWED_PARTS,
        plants,
        *padded,
        fs.train_gpt(),
        *fs.TINY,
        "--vocab-size",
        4200,
        "--train-iters",
        ITERATIONS,
    ]
    monitor = [
        "--enable-perf-monitor",
        "--perf-breakdown",
        "--perf-max-overhead",
        100,
        "--perf-log-dir",
        "perf",
    ]
    finished = fs.run(
        fs.torchrun(ranks, *fs.launched(*map(str, [*script, "--num-workers", 0, *more, *monitor]))),
        tmp_path,
        **env,
    )
    assert finished.returncode == 0, finished.output[-3000:]
    (path,) = (tmp_path / "perf").glob("perf_records_*.jsonl")
    findings = read_report(path).findings
    print([(finding.name, finding.gain) for finding in findings])
    assert findings[0].gain is not None
    return findings[0]


def seconds_of(tmp_path: Path) -> float:
    """All iterations but the first."""
    return sum(step["iteration_ns"] for step in fs.records(tmp_path / "perf")[1:]) / 1e9


def test_a_slow_data_loader(tmp_path):
    found = train(tmp_path, f"sample:{SAMPLE_S}")
    planted_s = (ITERATIONS - 1) * SAMPLES * SAMPLE_S
    assert found.name == "data_stall"
    assert found.gain == pytest.approx(planted_s / (seconds_of(tmp_path) - planted_s), rel=0.2)


def test_a_slow_start(tmp_path):
    """Steps 2 to 10 take 2 s more; how long the host itself starts is the machine's.
    The advice is of this run: it has phases, no dataset and a CPU.
    """
    iterations = 60
    found = train(tmp_path, f"train_step:{START_S}:until 11", "--train-iters", iterations, **PADS)
    summary = fs.summary(tmp_path / "perf")
    settled, wall_s = summary["settled"], summary["goodput"]["wall_s"]
    planted_s = 9 * START_S
    assert (found.name, found.first_iteration) == ("slow_start", 2)
    assert 10 <= found.iteration < iterations / 2
    assert found.gain == pytest.approx(planted_s / (wall_s - planted_s), rel=0.2)
    assert settled["excess_s"] == pytest.approx(planted_s, rel=0.2)
    assert settled["avg_iteration_ms"] < summary["final_statistics"]["avg_iteration_ms"]
    assert [change.flags for change in found.changes] == [["TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"], []]
    (header,) = fs.records(tmp_path / "perf", "header")
    arguments = header["facts"]["arguments"]
    assert (arguments["num_workers"], arguments["mock_data"], arguments["train_iters"]) == (
        0,
        True,
        iterations,
    )
    assert len(arguments) > 400


def test_a_slow_checkpoint(tmp_path):
    found = train(
        tmp_path,
        f"checkpoint:{CHECKPOINT_S}",
        "--save",
        tmp_path / "ckpt",
        "--save-interval",
        13,
        "--ckpt-format",
        "torch",
    )
    planted_s, wall_s = 2 * CHECKPOINT_S, fs.summary(tmp_path / "perf")["goodput"]["wall_s"]
    assert found.name == "checkpoint"
    assert found.gain == pytest.approx(planted_s / (wall_s - planted_s), rel=0.2)


def test_a_slow_stage(tmp_path):
    microbatches = 12  # so many that the bubble is within its limit
    parallel = ["--pipeline-model-parallel-size", 2, "--global-batch-size", 2 * microbatches]
    found = train(tmp_path, f"backward:{EXCESS_S}:calls:1", *parallel, ranks=2, **PADS)
    # By each stage's own clock: half of what the last one works longer would go to the first, for every
    # micro-batch but one.
    work_ns = [ranks["work_ns"] for ranks in fs.records(tmp_path / "perf", "ranks")]
    excess_ns = statistics.fmean(last_ns - first_ns for first_ns, last_ns in work_ns)
    saved_s = (ITERATIONS - 1) * excess_ns / 2 * (microbatches - 1) / microbatches / 1e9
    print(work_ns, saved_s, seconds_of(tmp_path))
    assert excess_ns > microbatches * EXCESS_S / 2 * 1e9
    assert found.name == "slow_stage"
    assert found.gain == pytest.approx(saved_s / (seconds_of(tmp_path) - saved_s), rel=0.2)


def test_a_slow_rank(tmp_path):
    iterations = 60  # it is named from the first whole block on to the last one
    excess_s = 2 * EXCESS_S  # beyond what a busy machine does to a step
    found = train(tmp_path, f"backward:{excess_s}:calls:1", "--train-iters", iterations, ranks=2, **PADS)
    planted_s = (iterations - 1) * excess_s
    assert (found.name, found.ranks) == ("straggler", [1])
    assert found.gain == pytest.approx(planted_s / (seconds_of(tmp_path) - planted_s), rel=0.2)
