"""DeepSeek-V4's attention in the models of FlagScale's Megatron-LM-FL, which 0.8.0's Megatron has not: every
product and every parameter of it is counted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.flops_calculator import ModelShape, count
from tests.hosts.trees import MISSING, source_trees, unpacked
from tests.oracle.comparison import counted
from tests.oracle.configurations import Args

MODEL: Args = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "ffn_hidden_size": 24,
    "swiglu": True,
    "kv_channels": 8,
    "normalization": "RMSNorm",
    "add_bias_linear": False,
    "padded_vocab_size": 32,
    "batch": 2,
    "seq_length": 256,
    "max_position_embeddings": 256,
    "position_embedding_type": "rope",
    "untie_embeddings_and_output_weights": True,
    "multi_latent_attention": True,
    "qk_layernorm": True,
    "q_lora_rank": 12,
    "kv_lora_rank": 4,
    "qk_head_dim": 4,
    "qk_pos_emb_head_dim": 4,
    "v_head_dim": 8,
    "experimental_attention_variant": "dsv4_hybrid",
    "csa_window_size": 16,
    "o_groups": 2,
    "o_lora_rank": 6,
    "dsa_indexer_n_heads": 3,
    "dsa_indexer_head_dim": 8,
    "dsa_indexer_topk": 5,
    "dsa_indexer_loss_coeff": 0.0,
    "apply_dsa_kernel_fusion": False,
}
KINDS: dict[str, Args] = {
    f"{ratios}{', dense' * dense}": MODEL
    | {"num_layers": len(ratios), "csa_compress_ratios": ratios, "csa_dense_mode": dense}
    for ratios, dense in (([0], False), ([4], False), ([4], True), ([128], False), ([0, 4, 128, 4], False))
}


@pytest.mark.oracle
def test_every_product_is_counted(tmp_path: Path) -> None:
    if not source_trees():
        pytest.skip(MISSING)
    name = "megatron/core/transformer/experimental_attention_variant/csa.py"
    core = next(tree for tree in unpacked(tmp_path).values() if (tree / name).is_file())
    made, ours = {}, {}
    for kind, result in counted(KINDS, [core]).items():
        args = KINDS[kind]
        shape = ModelShape.from_args(args)
        table = count(shape, args["batch"], args["seq_length"])
        made[kind] = (result["flop_counter_total"], result["parameters"])
        # that model multiplies the weights of the index heads elementwise
        indexed = args["csa_compress_ratios"].count(4) * (not args["csa_dense_mode"])
        weighting = 2 * args["dsa_indexer_n_heads"] * args["seq_length"] // 4 * args["seq_length"]
        total = table.totals["hardware_flops_full_attention"]
        ours[kind] = (total - args["batch"] * indexed * weighting, shape.parameters)
    assert ours == made
