"""Models with state-space, delta-rule and index layers to count, each by its config.json, in the form that
`transformers_counter` reads; `core` is the form of their cores.
"""

from __future__ import annotations

import random
from typing import Any

Args = dict[str, Any]

STEP: Args = {"batch": 2, "seq_length": 21}
BASE: Args = {
    "hidden_size": 32,
    "vocab_size": 96,
    "tie_word_embeddings": False,
    "use_cache": False,
    "pad_token_id": 0,
}
HEADS: Args = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48}
MAMBA2 = BASE | {
    "model_type": "mamba2",
    "num_heads": 8,
    "head_dim": 8,
    "state_size": 12,
    "n_groups": 2,
    "conv_kernel": 4,
    "chunk_size": 16,
    "num_hidden_layers": 3,
}
NEMOTRON = (
    BASE
    | HEADS
    | {
        "model_type": "nemotron_h",
        "head_dim": 12,
        "mamba_num_heads": 8,
        "mamba_head_dim": 8,
        "ssm_state_size": 12,
        "n_groups": 2,
        "conv_kernel": 4,
        "chunk_size": 16,
        "layers_block_type": ["linear_attention", "mlp", "full_attention", "linear_attention", "mlp"],
    }
)
EXPERTS: Args = {
    "layers_block_type": ["linear_attention", "moe", "full_attention", "moe"],
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "moe_shared_expert_intermediate_size": 20,
}
BAMBA = (
    BASE
    | HEADS
    | {
        "model_type": "bamba",
        "num_hidden_layers": 3,
        "attn_layer_indices": [1],
        "mamba_n_heads": 8,
        "mamba_d_head": 8,
        "mamba_n_groups": 2,
        "mamba_d_state": 12,
        "mamba_d_conv": 4,
        "mamba_chunk_size": 16,
        "mamba_expand": 2,
    }
)
GRANITE = BAMBA | {
    "model_type": "granitemoehybrid",
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "shared_intermediate_size": 20,
    "intermediate_size": 24,
}
del GRANITE["attn_layer_indices"]
LINEAR: Args = {
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_conv_kernel_dim": 4,
    "head_dim": 12,
    "num_hidden_layers": 4,
}
QWEN_NEXT = (
    BASE
    | HEADS
    | LINEAR
    | {
        "model_type": "qwen3_next",
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "shared_expert_intermediate_size": 20,
    }
)
# Megatron's router, which the formulas follow, computes both of its gradients or none; transformers' may have
# one, so frozen layers are counted where there are no experts.
QWEN_DENSE = BASE | HEADS | LINEAR | {"model_type": "qwen3_5_text"}
LATENT: Args = {
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 12,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 24,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "num_hidden_layers": 3,
}
KIMI = (
    BASE
    | HEADS
    | LATENT
    | {
        "model_type": "kimi_linear",
        "layer_types": ["linear_attention", "linear_attention", "full_attention"],
        "linear_num_heads": 4,
        "linear_head_dim": 8,
        "linear_conv_kernel_dim": 4,
        "num_local_experts": 4,
    }
)
DEEPSEEK = (
    BASE
    | HEADS
    | LATENT
    | {
        "model_type": "deepseek_v32",
        "q_lora_rank": 28,
        "n_routed_experts": 4,
        "first_k_dense_replace": 1,
        "index_n_heads": 3,
        "index_head_dim": 8,
        "index_topk": 6,
    }
)
RWKV = BASE | {
    "model_type": "rwkv",
    "num_hidden_layers": 2,
    "attention_hidden_size": 40,
    "intermediate_size": 72,
    "context_length": 64,
}
FULL: Args = {"recompute_granularity": "full", "recompute_method": "uniform"}


def step(config: Args, **options: Any) -> Args:
    """One model and what is done with it."""
    return STEP | {"config": config} | options


HYBRIDS: dict[str, Args] = {
    "mamba2": step(MAMBA2),
    "mamba2_by_hand": step(MAMBA2 | {"vocab_size": 160}, seq_length=48),
    "mamba2_chunked": step(MAMBA2, core="chunked"),
    "mamba2_bias": step(MAMBA2 | {"use_bias": True, "use_conv_bias": False}),
    "nemotron_h": step(NEMOTRON),
    "nemotron_h_chunked": step(NEMOTRON, core="chunked"),
    "nemotron_h_narrow": step(NEMOTRON | {"mamba_num_heads": 6, "n_groups": 3}),
    "nemotron_h_moe": step(NEMOTRON | EXPERTS),
    "nemotron_h_latent": step(NEMOTRON | EXPERTS | {"moe_latent_size": 16}),
    "bamba": step(BAMBA),
    "bamba_chunked": step(BAMBA, core="chunked"),
    "granite": step(GRANITE),
    "granite_dense": step(GRANITE | {"num_local_experts": 0}),
    "qwen3_next": step(QWEN_NEXT),
    "qwen3_next_chunked": step(QWEN_NEXT, core="chunked", seq_length=70),
    "qwen3_next_dense_layer": step(QWEN_NEXT | {"mlp_only_layers": [1], "full_attention_interval": 2}),
    "qwen3_5": step(QWEN_DENSE),
    "qwen3_5_moe": step(QWEN_NEXT | {"model_type": "qwen3_5_moe_text"}),
    "kimi_linear": step(KIMI),
    "kimi_linear_chunked": step(KIMI, core="chunked", seq_length=70),
    "deepseek_v32": step(DEEPSEEK),
    "deepseek_v32_short": step(DEEPSEEK | {"index_topk": 64}),
    "rwkv": step(RWKV),
    "nemotron_h_recompute": step(NEMOTRON | EXPERTS, **FULL),
    "nemotron_h_recompute_chunked": step(NEMOTRON, core="chunked", **FULL),
    "qwen3_next_recompute": step(QWEN_NEXT, **FULL),
    "kimi_linear_recompute": step(KIMI, **FULL),
    "nemotron_h_frozen": step(NEMOTRON, frozen=["embedding", "layers.0", "layers.1"]),
    "qwen3_5_frozen": step(QWEN_DENSE, frozen=["layers.1", "layers.3"]),
    "deepseek_v32_frozen": step(DEEPSEEK, frozen=["embedding", "layers.0"]),
}


def random_hybrids(count: int, seed: int) -> dict[str, Args]:
    """`count` models of all families by turns, with other sizes, layers, lengths and forms of their cores."""
    source = random.Random(seed)
    kinds = [_random_mamba, _random_nemotron, _random_qwen, _random_kimi, _random_deepseek, _random_rwkv]
    made = {}
    for number in range(count):
        config = kinds[number % len(kinds)](source)
        config |= {"hidden_size": 8 * source.randint(2, 5), "vocab_size": source.randint(40, 120)}
        if config["model_type"] == "mamba2":  # transformers demands twice the width
            config["head_dim"] = 2 * config["hidden_size"] // config["num_heads"]
        form = source.choice(["recurrent", "recurrent", "chunked"])
        made[f"hybrid_{seed}_{number}"] = step(
            config, batch=source.randint(1, 3), seq_length=source.randint(5, 40), core=form
        )
    return made


def _layers(source: random.Random, *kinds: str) -> list[str]:
    return [source.choice(kinds) for _ in range(source.randint(1, 4))]


def _random_mamba(source: random.Random) -> Args:
    groups = source.choice([1, 2, 4])
    sizes = {"num_heads": 4, "n_groups": groups, "state_size": source.randint(3, 16)}
    return (
        MAMBA2 | sizes | {"num_hidden_layers": source.randint(1, 3), "chunk_size": source.choice([4, 8, 16])}
    )


def _random_nemotron(source: random.Random) -> Args:
    groups = source.choice([1, 2, 3])
    return (
        NEMOTRON
        | EXPERTS
        | {
            "layers_block_type": _layers(source, "linear_attention", "mlp", "full_attention", "moe"),
            "n_groups": groups,
            "mamba_num_heads": groups * source.randint(1, 3),
            "mamba_head_dim": source.randint(4, 12),
            "ssm_state_size": source.randint(3, 16),
            "conv_kernel": source.choice([2, 4]),
            "chunk_size": source.choice([4, 8, 16]),
            "moe_latent_size": source.choice([None, 12]),
            "num_experts_per_tok": source.randint(1, 3),
        }
    )


def _random_qwen(source: random.Random) -> Args:
    keys = source.randint(1, 3)
    return QWEN_NEXT | {
        "model_type": source.choice(["qwen3_next", "qwen3_5_moe_text"]),
        "num_hidden_layers": 3,
        "layer_types": source.choices(["linear_attention", "full_attention"], k=3),
        "linear_num_key_heads": keys,
        "linear_num_value_heads": keys * source.randint(1, 3),
        "linear_key_head_dim": source.randint(4, 12),
        "linear_value_head_dim": source.randint(4, 12),
        "shared_expert_intermediate_size": source.randint(8, 24),
        "num_experts_per_tok": source.randint(1, 4),
    }


def _random_kimi(source: random.Random) -> Args:
    return KIMI | {
        "layer_types": ["linear_attention", *source.choices(["linear_attention", "full_attention"], k=2)],
        "linear_num_heads": source.randint(1, 4),
        "linear_head_dim": source.randint(4, 12),
        "kv_lora_rank": source.randint(8, 24),
        "v_head_dim": source.randint(4, 12),
    }


def _random_deepseek(source: random.Random) -> Args:
    return DEEPSEEK | {
        "num_hidden_layers": source.randint(1, 3),
        "first_k_dense_replace": source.randint(0, 1),
        "index_n_heads": source.randint(1, 4),
        "index_head_dim": 2 * source.randint(2, 6),
        "index_topk": source.randint(2, 50),
        "q_lora_rank": source.randint(8, 32),
    }


def _random_rwkv(source: random.Random) -> Args:
    return RWKV | {
        "num_hidden_layers": source.randint(2, 3),
        "attention_hidden_size": source.randint(16, 48),
        "intermediate_size": source.randint(16, 80),
    }
