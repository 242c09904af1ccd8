"""examples/torchtitan in torchtitan's real training, on CPUs, against what that counts and prints itself."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from flagscale_perf import ModelShape, open_run, step_flops
from flagscale_perf.flops_calculator import count
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.training.records import StepRecord

PYTHON = os.environ.get("TORCHTITAN_PYTHON", "")
pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(not PYTHON, reason="TORCHTITAN_PYTHON names no Python that has torchtitan"),
]
REPO = Path(__file__).parents[2]
EXAMPLE = REPO / "examples/torchtitan"
STEPS, LOGGED, SEQUENCE, SAMPLES, PEAK_FLOP_PER_S = 12, 4, 32, 4, 1e10  # of on_cpu.py
HIDDEN, LAYERS = 256, 2
SHAPE = ModelShape.from_hf(
    {
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": 768,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 16,
        "vocab_size": 2048,
        "tie_word_embeddings": False,
    }
)
LINE = re.compile(
    r"step: +(\d+)  loss: +(\S+)  grad_norm: +(\S+) .* tps: ([\d,]+)  tflops: \S+  mfu: ([\d.]+)%"
)


class Trained(NamedTuple):
    """What torchtitan prints of each step that it logs: number, loss, norm of gradients; then, by number,
    tokens a second and rank, and MFU in percent.
    """

    told: list[tuple[str, ...]]
    speeds: dict[int, tuple[float, float]]
    records: Path


def train(directory: Path, ranks: int, config: str) -> Trained:
    directory.mkdir()
    environ = {
        **os.environ,
        "PYTHONPATH": f"{EXAMPLE}{os.pathsep}{REPO}",
        "OMP_NUM_THREADS": "1",
        "FLAGSCALE_PERF_ENABLE_MONITOR": "1",
        "FLAGSCALE_PERF_PEAK_TFLOPS": str(PEAK_FLOP_PER_S / 1e12),
        "FLAGSCALE_PERF_LOG_INTERVAL": str(LOGGED),
    }
    launch = [PYTHON, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    done = subprocess.run(
        [*launch, str(EXAMPLE / "on_cpu.py"), "--module", "on_cpu", "--config", config],
        cwd=directory, env=environ, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-3000:]
    lines = {tuple(each) for each in LINE.findall(output)}  # rank 0 prints them
    told = sorted({each[:3] for each in lines}, key=lambda each: int(each[0]))
    speeds = {int(step): (float(speed.replace(",", "")), float(mfu)) for step, _, _, speed, mfu in lines}
    return Trained(told, speeds, directory / "logs/perf_monitor")


def flops_per_token() -> int:
    """By torchtitan's formula, for the model of on_cpu.py."""
    code = (
        "import on_cpu, torch\n"
        "model = on_cpu.tiny().model_spec.model\n"
        "with torch.device('meta'):\n"
        f"    print(model.get_nparams_and_flops(model.build(), {SEQUENCE})[1])\n"
    )
    environ = {**os.environ, "PYTHONPATH": f"{EXAMPLE}{os.pathsep}{REPO}"}
    done = subprocess.run([PYTHON, "-c", code], env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout.split()[-1])


@pytest.mark.parametrize("ranks", [1, 2])
def test_it_is_recorded_as_torchtitan_counts_itself(tmp_path: Path, ranks: int) -> None:
    alone = train(tmp_path / "alone", ranks, "tiny")
    found = train(tmp_path / "monitored", ranks, "tiny_monitored")
    assert found.told == alone.told
    assert [int(step) for step, *_ in alone.told] == [1, 4, 8, 12]

    run = open_run(found.records)
    steps = [record for record in run.records() if isinstance(record, StepRecord)]
    flops = step_flops(SHAPE, SAMPLES, SEQUENCE)
    assert [step.iteration for step in steps] == [*range(1, STEPS + 1)]
    assert {(step.samples, step.tokens) for step in steps} == {(SAMPLES, SAMPLES * SEQUENCE)}
    assert {step.microbatches for step in steps} == {2 // ranks}
    assert {(step.model_flops, step.hardware_flops) for step in steps} == {tuple(flops)}
    facts = run.facts
    assert (facts.host, facts.data_parallel, facts.dtype) == ("torchtitan 0.3.0", ranks, "fp32")
    assert [each.reason for each in run.records() if isinstance(each, RunEnd)] == ["completed"]

    # From the end of step 4 to that of step 12, give or take the logging of a step.
    mine = [step for step in steps if step.iteration > LOGGED]
    seconds = sum(step.iteration_ns for step in mine) / 1e9
    tokens = LOGGED * SAMPLES * SEQUENCE / ranks
    theirs = [(tokens / found.speeds[step][0], found.speeds[step][1] / 100) for step in (8, 12)]
    their_seconds = sum(took_s for took_s, _ in theirs)
    assert seconds == pytest.approx(their_seconds, rel=0.2)
    mfu = len(mine) * (flops.model_flops or 0) / ranks / seconds / PEAK_FLOP_PER_S
    counted = (flops.model_flops or 0) / (flops_per_token() * SAMPLES * SEQUENCE)
    assert mfu == pytest.approx(counted * sum(took_s * of for took_s, of in theirs) / their_seconds, rel=0.2)


def test_what_torchtitans_formula_counts_otherwise() -> None:
    """All pairs of tokens, and the weights of norms as if they were matrices."""
    norms = 6 * HIDDEN * (2 * LAYERS + 1)
    full = count(SHAPE, 1, SEQUENCE).totals["model_flops_full_attention"]
    assert flops_per_token() * SEQUENCE == (full or 0) + norms * SEQUENCE
