"""Published configs of hybrid models; what they make is counted in tests/oracle."""

from __future__ import annotations

from collections import Counter

import pytest

from flagscale_perf.flops.sizes import DeltaNet, Indexer, KimiDelta, Mamba
from flagscale_perf.flops_calculator import ModelShape, count
from flagscale_perf.spine.errors import PerfError

BASE = {"hidden_size": 4096, "vocab_size": 131072, "num_attention_heads": 32, "num_key_value_heads": 8}
# Nemotron-H 8B's sizes, by the letters of its config.json
NEMOTRON = BASE | {
    "model_type": "nemotron_h",
    "hybrid_override_pattern": "M-M*-M",
    "num_hidden_layers": 6,
    "head_dim": 128,
    "intermediate_size": 21504,
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "chunk_size": 128,
}


def test_nemotron_h_has_one_block_a_layer() -> None:
    shape = ModelShape.from_hf(NEMOTRON)
    assert shape.family == "hybrid"
    assert [blocks[0] for blocks in shape.blocks] == ["mamba", "mlp", "mamba", "attention", "mlp", "mamba"]
    assert shape.mamba == Mamba(128, 64, 128, 8, conv=4, chunk=128)
    assert (shape.gated, shape.experts) == (False, None)
    table = count(shape, 1, 1).components
    # one mixer and token, in millions: 152.0 into it, 67.1 out of it, 4.19 in its core
    per_mixer = {
        name: round(table[f"mamba.{name}"]["fwd"] / 3e6, 2) for name in ("in_proj", "out_proj", "core")
    }
    assert per_mixer == {"in_proj": 152.04, "out_proj": 67.11, "core": 4.19}
    newer = {name: value for name, value in NEMOTRON.items() if name != "hybrid_override_pattern"}
    kinds = ["mamba", "mlp", "linear_attention", "attention", "mlp", "mamba"]
    assert ModelShape.from_hf(newer | {"layers_block_type": kinds}) == shape


def test_depths_of_a_hybrid_have_layers_of_their_own() -> None:
    further = {"mtp_num_layers": 1, "mtp_layers_block_type": ["full_attention", "mlp"]}
    shape = ModelShape.from_hf(NEMOTRON | further)
    assert (shape.mtp_layers, shape.mtp_blocks) == (1, ("attention", "mlp"))


def test_bamba_and_granite_have_a_mixer_and_a_feed_forward_block() -> None:
    sizes = {
        "num_hidden_layers": 3,
        "intermediate_size": 100,
        "mamba_n_heads": 128,
        "mamba_d_head": "auto",
        "mamba_d_state": 64,
        "mamba_n_groups": 1,
    }
    bamba = ModelShape.from_hf(BASE | sizes | {"model_type": "bamba", "attn_layer_indices": [1]})
    assert bamba.blocks == (("mamba", "mlp"), ("attention", "mlp"), ("mamba", "mlp"))
    assert bamba.mamba == Mamba(128, 2 * 4096 // 128, 64, 1, chunk=256)
    kinds = {"layer_types": ["mamba", "attention", "mamba"], "shared_intermediate_size": 7}
    granite = BASE | sizes | kinds | {"model_type": "granitemoehybrid"}
    assert ModelShape.from_hf(granite | {"num_local_experts": 0}).ffn == 7
    routed = ModelShape.from_hf(granite | {"num_local_experts": 4, "num_experts_per_tok": 2})
    assert routed.blocks[0] == ("mamba", "mixture")
    assert routed.experts is not None
    assert (routed.experts.ffn_hidden_size, routed.experts.shared_ffn_hidden_size) == (100, 7)


def test_qwen3_next() -> None:
    sizes = {"num_key_heads": 16, "num_value_heads": 32, "key_head_dim": 128, "value_head_dim": 128}
    config = (
        BASE
        | {f"linear_{name}": size for name, size in sizes.items()}
        | {
            "model_type": "qwen3_next",
            "hidden_size": 2048,
            "num_hidden_layers": 8,
            "head_dim": 256,
            "num_experts": 512,
            "num_experts_per_tok": 10,
            "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512,
            "linear_conv_kernel_dim": 4,
        }
    )
    shape = ModelShape.from_hf(config)
    assert shape.family == "qwen_next"
    assert Counter(layer[0] for layer in shape.blocks) == {"gdn": 6, "attention": 2}
    assert shape.delta == DeltaNet(16, 32, 128, 128)
    assert shape.output_gate
    assert shape.experts is not None
    assert shape.experts.shared_gate
    table = count(shape, 1, 1).components
    per_layer = {
        name: round(table[f"gdn.{name}"]["fwd"] / 6e6, 2) for name in ("in_proj", "out_proj", "core")
    }
    assert per_layer == {"in_proj": 50.59, "out_proj": 16.78, "core": 3.15}


def test_kimi_linear_in_both_forms() -> None:
    latent = {
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "model_type": "kimi_linear",
        "num_hidden_layers": 4,
        "intermediate_size": 9216,
        "num_experts": 256,
        "moe_intermediate_size": 1024,
        "num_experts_per_token": 8,
        "num_shared_experts": 1,
        "first_k_dense_replace": 1,
    }
    own = {"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4, "kda_layers": [1, 2, 3]}
    moonshot = ModelShape.from_hf(BASE | latent | {"linear_attn_config": own | {"full_attn_layers": [4]}})
    assert moonshot.family == "kimi_linear"
    assert moonshot.kda == KimiDelta(32, 128, conv=4)
    assert moonshot.blocks == (
        ("kda", "mlp"),
        ("kda", "mixture"),
        ("kda", "mixture"),
        ("latent_attention", "mixture"),
    )
    kinds = ["linear_attention"] * 3 + ["full_attention"]
    named = {
        "layer_types": kinds,
        "linear_num_heads": 32,
        "linear_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    }
    assert ModelShape.from_hf(BASE | latent | named) == moonshot


def test_deepseek_v32() -> None:
    config = BASE | {
        "model_type": "deepseek_v32",
        "num_hidden_layers": 4,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "intermediate_size": 18432,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "n_shared_experts": 1,
        "index_n_heads": 64,
        "index_head_dim": 128,
        "index_topk": 2048,
    }
    shape = ModelShape.from_hf(config)
    assert shape.indexer == Indexer(64, 128, 2048, absorbed=False)
    assert shape.blocks == (("sparse_attention", "mlp"),) * 3 + (("sparse_attention", "mixture"),)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"hybrid_override_pattern": None}, "layers_block_type is None; write a list of the layers' kinds"),
        (
            {"hybrid_override_pattern": None, "layers_block_type": ["hyena"]},
            "layers_block_type has 'hyena'; known are mamba",
        ),
        ({"ssm_state_size": None}, "ssm_state_size is missing; add it"),
    ],
)
def test_what_is_missing_is_named(changed: dict[str, object], says: str) -> None:
    with pytest.raises(PerfError, match=says):
        ModelShape.from_hf(NEMOTRON | changed)
