"""FlagScale's real training: what its train steps multiply, all ranks together, is what the formulas and the
monitor's records say.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.flops_calculator import ModelShape, count, step_flops
from tests.processes.flagscale import LLAMA, TINY, launched, records, run, train_gpt, workers

pytestmark = pytest.mark.host

STEPS, BATCH, LENGTH = 2, 4, 64
# What TINY and LLAMA say on the command line.
ARGS = {
    "num_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "seq_length": LENGTH,
    "vocab_size": 8000,
    "micro_batch_size": 2,
    "tokenizer_type": "NullTokenizer",
    "swiglu": True,
    "group_query_attention": True,
    "num_query_groups": 2,
}
EXPERTS = {
    "num_experts": 4,
    "moe_router_topk": 2,
    "moe_ffn_hidden_size": 48,
    "moe_shared_expert_intermediate_size": 32,
}
BLOCK = {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 1}
LONG = pytest.mark.oracle
CASES = {
    # FlagScale makes 224 of it; without the two it would be 128, and a GPT's is 256
    "pipeline parallel, block recompute, Aquila's inner width": pytest.param(
        2,
        {"num_layers": 4, "pipeline_model_parallel_size": 2, "multiple_of": 16, "hidden_dim_multiplier": 1.3}
        | BLOCK,
    ),
    "data and expert parallel, selective recompute": pytest.param(
        2,
        EXPERTS
        | {
            "expert_model_parallel_size": 2,
            "recompute_granularity": "selective",
            "recompute_modules": ["core_attn", "moe"],
        },
        marks=LONG,
    ),
    "tensor parallel": pytest.param(2, {"tensor_model_parallel_size": 2}, marks=LONG),
    "experts and further prediction": pytest.param(
        1, EXPERTS | {"mtp_num_layers": 1, "moe_layer_freq": "[0]+[1]*1"}, marks=LONG
    ),
}


def flags(args):
    words = []
    for name, value in args.items():
        words += ["--" + name.replace("_", "-"), *map(str, value if isinstance(value, list) else [value])]
    return words


@pytest.mark.parametrize(("ranks", "args"), CASES.values(), ids=CASES)
def test_train_steps_multiply_what_the_formulas_say(ranks: int, args: dict[str, Any], tmp_path: Path) -> None:
    monitor = ["--enable-perf-monitor", "--perf-log-dir", str(tmp_path / "perf")]
    script = [Path(__file__).with_name("counted_training.py"), tmp_path, train_gpt()]
    words = [*TINY, *LLAMA, *flags(args), *shlex.split(f"--train-iters {STEPS}"), *monitor]
    finished = run(workers(ranks, *launched(*script, *words)), tmp_path)
    assert finished.returncode == 0, finished.output[-4000:]
    counted = [
        sum(map(int, step))
        for step in zip(*((tmp_path / str(rank)).read_text().split() for rank in range(ranks)), strict=True)
    ]
    shape = ModelShape.from_args(ARGS | args)
    assert counted == [count(shape, BATCH, LENGTH).totals["hardware_flops_full_attention"]] * STEPS
    recorded = [(step["model_flops"], step["hardware_flops"]) for step in records(tmp_path / "perf")]
    assert recorded == [tuple(step_flops(shape, BATCH, LENGTH))] * STEPS
