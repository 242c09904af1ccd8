"""The component names of hybrid models' modules in transformers; see `transformers_components`."""

from __future__ import annotations

from typing import Any

_ATTENTION = [
    (r"(self_attn|mixer)\.[qkv]_proj$", "qkv_proj"),
    (r"(self_attn|mixer)\.o_proj$", "out_proj"),
]
_LATENT = [
    (r"self_attn\.q_proj$", "qkv_proj.q_proj"),
    (r"self_attn\.q_a_proj$", "qkv_proj.q_down_proj"),
    (r"self_attn\.q_b_proj$", "qkv_proj.q_up_proj"),
    (r"self_attn\.kv_a_proj_with_mqa$", "qkv_proj.kv_down_proj"),
    (r"self_attn\.kv_b_proj$", "qkv_proj.kv_up_proj"),
    (r"self_attn\.o_proj$", "out_proj"),
]
_MIXTURE = [
    (r"(mlp|mixer)\.gate$", "moe_router"),
    (r"(mlp|mixer)\.experts$", "moe_routed_experts"),
    (r"(mlp|mixer)\.shared_experts?$", "moe_shared_experts"),
    (r"(mlp|mixer)\.shared_expert_gate$", "moe_shared_expert_gate"),
    (r"mixer\.fc[12]_latent_proj$", "moe_latent_proj"),
    (r"(mlp|feed_forward)$", "mlp"),
    (r"^lm_head$", "logits"),
]
_MAMBA = [
    (r"(mamba|mixer)\.in_proj$", "mamba.in_proj"),
    (r"(mamba|mixer)\.out_proj$", "mamba.out_proj"),
]
_GDN = [
    (r"linear_attn\.in_proj_\w+$", "gdn.in_proj"),
    (r"linear_attn\.out_proj$", "gdn.out_proj"),
]
_KIMI = ("q_proj", "k_proj", "v_proj", "b_proj", "f_a_proj", "f_b_proj", "g_a_proj", "g_b_proj", "o_proj")
_CORE = [(r"self_attn$", "core_attention")]
_QWEN = [*_GDN, *_ATTENTION, *_MIXTURE, *_CORE]

_ROWS: dict[str, list[tuple[str, str]]] = {
    "mamba2": [*_MAMBA, *_MIXTURE],
    "nemotron_h": [
        *_MAMBA,
        *_ATTENTION,
        *_MIXTURE,
        (r"mixer\.(up|down)_proj$", "mlp"),
        (r"mixer$", "core_attention"),
    ],
    "bamba": [*_MAMBA, *_ATTENTION, *_MIXTURE, *_CORE],
    "granitemoehybrid": [
        *_MAMBA,
        *_ATTENTION,
        *_CORE,
        (r"block_sparse_moe\.router$", "moe_router"),
        (r"shared_mlp$", "moe_shared_experts"),
        (r"block_sparse_moe\.experts$", "moe_routed_experts"),
        *_MIXTURE,
    ],
    "qwen3_next": _QWEN,
    "qwen3_5_text": _QWEN,
    "qwen3_5_moe_text": _QWEN,
    "kimi_linear": [
        *_LATENT,
        *_MIXTURE,
        *_CORE,
    ],
    "deepseek_v32": [
        *((rf"indexer\.{name}$", f"indexer.{name}") for name in ("wq_b", "wk", "weights_proj")),
        (r"indexer$", "indexer.scores"),
        *_LATENT,
        *_MIXTURE,
        *_CORE,
    ],
    "rwkv": [
        (r"attention$", "rwkv_time_mix"),
        (r"feed_forward$", "rwkv_channel_mix"),
        (r"^head$", "logits"),
    ],
}


def rows_of(config: dict[str, Any]) -> list[tuple[str, str]] | None:
    """Patterns of module paths and their components, the first that fits; None for another kind of model."""
    kind = config["model_type"]
    rows = _ROWS.get(kind)
    if kind == "kimi_linear":  # both of its attentions have a q_proj and an o_proj
        linear = "|".join(
            str(layer) for layer, each in enumerate(config["layer_types"]) if each == "linear_attention"
        )
        place = rf"layers\.({linear})\.self_attn\.(forget_gate\.)?"
        rows = [*((rf"{place}{name}$", f"kda.{name}") for name in _KIMI), *_ROWS[kind]]
    if kind == "granitemoehybrid" and not config["num_local_experts"]:
        rows = [(r"shared_mlp$", "mlp"), *_ROWS[kind]]
    return rows


# Names in `frozen`, and the paths of their parameters; {} is the name's number.
FROZEN_PARTS = [
    (r"embedding", r"(model|backbone)\.embed"),
    (r"output_layer", r"lm_head\."),
    (r"layers\.\d+", r"(model|backbone)\.layers\.{}\."),
]
