"""Megatron's `pretrain_mamba.py` as FlagScale brings it along, unmodified: what its train steps multiply,
part by part, is what the formulas, the command and the monitor's records say.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from flagscale_perf.cli import main
from flagscale_perf.flops_calculator import ModelShape, count, step_flops
from tests.processes import flagscale as fs

pytestmark = pytest.mark.host

REPO = Path(__file__).parents[2]
STEPS, BATCH, LENGTH = 2, 4, 64
# In place of what needs Transformer Engine, and of nothing else: see hybrid_stack.
WORDS = "--spec tests.oracle.hybrid_stack spec --num-layers 4 --is-hybrid-model"
MAMBA = {
    "hybrid_override_pattern": "M*M-", "mamba_num_heads": 5, "mamba_head_dim": 12, "mamba_state_dim": 16,
    "mamba_num_groups": 1,
}  # fmt: skip
TINY = {
    "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 8000, "tokenizer_type": "NullTokenizer",
    "seq_length": LENGTH,
}  # fmt: skip


def train(directory: Path, args: dict, *monitor: str) -> list[dict]:
    """Trains in `directory`; what every step multiplied."""
    directory.mkdir()
    megatron = fs.root() / "third_party" / "Megatron-LM"
    flags = [word for name, value in args.items() for word in ("--" + name.replace("_", "-"), str(value))]
    script = [Path(__file__).with_name("counted_components.py"), directory, megatron / "pretrain_mamba.py"]
    words = [*fs.TINY, *shlex.split(WORDS), *flags, "--train-iters", str(STEPS), *monitor]
    path = os.pathsep.join(map(str, (REPO, fs.root(), megatron)))
    finished = fs.run(
        fs.workers(1, *fs.launched(*script, *words, "--tensorboard-dir", "tb")), directory, PYTHONPATH=path
    )
    assert finished.returncode == 0, finished.output[-4000:]
    return [json.loads(line) for line in (directory / "0").read_text().splitlines()]


def test_a_hybrids_steps_multiply_what_the_formulas_say(tmp_path, capsys):
    off = train(tmp_path / "off", MAMBA)
    on = train(tmp_path / "on", MAMBA, "--enable-perf-monitor", "--perf-log-dir", "perf")
    assert fs.host_losses(tmp_path / "on" / "tb") == fs.host_losses(tmp_path / "off" / "tb")
    assert len(fs.host_losses(tmp_path / "on" / "tb")) == STEPS

    args = TINY | MAMBA | {"num_layers": 4}
    shape = ModelShape.from_args(args)
    table = count(shape, BATCH, LENGTH)
    expected = {
        name: {phase: flops for phase, flops in parts.items() if phase != "padding"}
        for name, parts in table.components.items()
    }
    assert on == off == [expected | {"unattributed": 0}] * STEPS
    recorded = [
        (step["model_flops"], step["hardware_flops"]) for step in fs.records(tmp_path / "on" / "perf")
    ]
    assert recorded == [tuple(step_flops(shape, BATCH, LENGTH))] * STEPS

    (tmp_path / "model.json").write_text(json.dumps(args))
    assert main(["flops", "--args", str(tmp_path / "model.json"), "--batch-size", str(BATCH), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["totals"]["model_flops_causal_half"]
    assert said == recorded[0][0]
    # attention counts half of what this stack multiplies in full
    half = sum(expected["core_attention"].values()) // 2
    assert said == sum(sum(parts.values()) for parts in expected.values()) - half
