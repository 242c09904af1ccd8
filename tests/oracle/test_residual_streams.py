"""Residual streams (mHC) in the models of FlagScale's Megatron-LM-FL, which 0.8.0's Megatron has not."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.flops_calculator import ModelShape, count
from tests.hosts.trees import MISSING, places, unpacked
from tests.oracle.comparison import counted
from tests.oracle.configurations import Args

MODEL: Args = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "ffn_hidden_size": 24,
    "swiglu": True,
    "normalization": "RMSNorm",
    "add_bias_linear": False,
    "padded_vocab_size": 32,
    "batch": 2,
    "seq_length": 8,
    "max_position_embeddings": 8,
    "position_embedding_type": "rope",
    "untie_embeddings_and_output_weights": True,
}
STREAMS: dict[str, Args] = {
    f"{streams} streams, {layers} layers": MODEL
    | {"num_layers": layers, "enable_hyper_connections": bool(streams), "num_residual_streams": streams or 4}
    for streams, layers in ((0, 2), (4, 1), (4, 2), (2, 3))
}


@pytest.mark.oracle
def test_every_product_of_the_streams_is_counted(tmp_path: Path) -> None:
    if not places():
        pytest.skip(MISSING)
    trees = unpacked(tmp_path).values()
    core = next(tree for tree in trees if (tree / "megatron/core/transformer/hyper_connection.py").is_file())
    made, ours = {}, {}
    for name, result in counted(STREAMS, [core]).items():
        made[name] = (result["flop_counter_total"], result["parameters"])
        shape = ModelShape.from_args(STREAMS[name])
        parts = count(shape, MODEL["batch"], MODEL["seq_length"]).components
        ours[name] = (sum(sum(phases.values()) for phases in parts.values()), shape.parameters)
    assert ours == made
