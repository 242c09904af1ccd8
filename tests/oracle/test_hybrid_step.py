"""Trainings of hybrids, their hosts' own scripts and layers: what their steps multiply, part by part, is what
the formulas, the command and the monitor's records say.
"""

from __future__ import annotations

import json

import pytest

from flagscale_perf.cli import main
from flagscale_perf.flops_calculator import ModelShape
from tests.oracle import bridge_qwen_next
from tests.oracle.real_steps import (
    MONITOR,
    assert_recorded,
    bridge_path,
    expected,
    flags,
    train,
    train_megatron,
)
from tests.processes import flagscale as fs

pytestmark = [pytest.mark.host, pytest.mark.oracle]

STEPS, BATCH, LENGTH = 2, 4, 64
MAMBA = {
    "num_layers": 4,
    "hybrid_override_pattern": "M*M-",
    "mamba_num_heads": 5,
    "mamba_head_dim": 12,
    "mamba_state_dim": 16,
    "mamba_num_groups": 1,
}
TINY = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "vocab_size": 8000,
    "tokenizer_type": "NullTokenizer",
    "seq_length": LENGTH,
}


def train_mamba(directory, *monitor):
    directory.mkdir()
    spec = ["--spec", "tests.oracle.hybrid_stack", "mamba_stack_spec", "--is-hybrid-model"]
    words = [*fs.TINY, *spec, *flags(MAMBA), "--train-iters", STEPS, *monitor]
    return train_megatron(directory, "pretrain_mamba.py", words)


def test_mamba_and_attention_in_megatrons_own_script(tmp_path, capsys):
    args = TINY | MAMBA
    shape = ModelShape.from_args(args)
    parts = expected(shape, BATCH, LENGTH)
    assert train_mamba(tmp_path / "on", *MONITOR) == [parts] * STEPS
    assert_recorded(tmp_path / "on", shape, BATCH, LENGTH)

    (tmp_path / "model.json").write_text(json.dumps(args))
    assert main(["flops", "--args", str(tmp_path / "model.json"), "--batch-size", str(BATCH), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["totals"]["model_flops_causal_half"]
    multiplied = sum(sum(phases.values()) for phases in parts.values() if phases)
    # attention counts half of what this stack multiplies in full
    assert said == multiplied - sum(parts["core_attention"].values()) // 2


def test_the_monitor_changes_no_loss_and_no_product_of_it(tmp_path):
    counted = [train_mamba(tmp_path / "off"), train_mamba(tmp_path / "on", *MONITOR)]
    assert counted[0] == counted[1]
    losses = [fs.host_losses(tmp_path / name / "tb") for name in ("off", "on")]
    assert losses[0] == losses[1]
    assert len(losses[0]) == STEPS


def test_gated_delta_nets_and_experts_in_megatron_bridge(tmp_path):
    script = bridge_qwen_next.__file__
    monitor = {"FLAGSCALE_PERF_ENABLE_MONITOR": "1", "FLAGSCALE_PERF_LOG_DIR": "perf"}
    counts = train(tmp_path, [script, tmp_path], bridge_path(), **monitor)
    sizes = bridge_qwen_next.SIZES
    bridge_names = {
        "num_experts": sizes["num_moe_experts"],
        "padded_vocab_size": sizes["vocab_size"],
        "swiglu": True,
        "group_query_attention": True,
        "attention_output_gate": True,
        "moe_shared_expert_gate": True,
    }
    shape, length = ModelShape.from_args(sizes | bridge_names), sizes["seq_length"]
    assert counts == [expected(shape, BATCH, length)] * STEPS
    assert_recorded(tmp_path, shape, BATCH, length)
