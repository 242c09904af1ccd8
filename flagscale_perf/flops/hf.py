"""Translates a Hugging Face `config.json` into Megatron's argument names, without transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.hf_hybrid import HYBRIDS
from flagscale_perf.spine.errors import PerfError

# Training arguments that a config.json may hold in addition to what transformers reads.
OF_TRAINING = (
    *("decoder_seq_length", "image_grids", "frozen", "freeze_ViT", "freeze_LM", "recompute_granularity"),
    *("recompute_method", "recompute_num_layers", "recompute_modules", "micro_batch_size"),
)

# argument -> keys that may hold it, the first one present wins
_KEYS = {
    "num_layers": ("num_hidden_layers", "n_layer"),
    "hidden_size": ("hidden_size", "n_embd"),
    "num_attention_heads": ("num_attention_heads", "n_head"),
    "ffn_hidden_size": ("intermediate_size", "n_inner"),
    "kv_channels": ("head_dim",),
    "padded_vocab_size": ("vocab_size",),
    "max_position_embeddings": ("max_position_embeddings", "n_positions"),
    "num_experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "moe_router_topk": ("num_experts_per_tok",),
    "moe_ffn_hidden_size": ("moe_intermediate_size",),
    "mtp_num_layers": ("num_nextn_predict_layers",),
    "q_lora_rank": ("q_lora_rank",),
    "kv_lora_rank": ("kv_lora_rank",),
    "qk_head_dim": ("qk_nope_head_dim",),
    "qk_pos_emb_head_dim": ("qk_rope_head_dim",),
    "v_head_dim": ("v_head_dim",),
}


def is_hf(content: Mapping[str, Any]) -> bool:
    """Whether this is a `config.json`. T5's contains num_layers, as Megatron's arguments do."""
    return "model_type" in content and ("num_layers" not in content or "d_model" in content)


def args_from_hf(config: Mapping[str, Any], family: str, gated: bool) -> dict[str, Any]:
    """Megatron-style arguments of a config; the vocabulary is not padded. Raises PerfError for a missing key.

    Args:
        config: the file's contents.
        family: the one that its model_type belongs to.
        gated: whether its feed-forward blocks have three matrices.
    """
    args: dict[str, Any] = {
        "model_family": family,
        "swiglu": gated,
        "untie_embeddings_and_output_weights": not _is_tied(config),
    }
    for name, keys in _KEYS.items():
        args[name] = next((config[key] for key in keys if config.get(key) is not None), None)
    own = HYBRIDS[config["model_type"]](config) if config["model_type"] in HYBRIDS else {}
    for name in ("num_layers", "hidden_size", "num_attention_heads", "padded_vocab_size"):
        if own.get(name, args[name]) is None:
            raise PerfError(f"config.json: {_KEYS[name][0]} is missing; add it")
    layers = Arguments(args | own).layers()
    args |= _attention(config, args) | _bias(config) | _window(config, layers)
    if args["num_experts"]:
        args |= _experts(config, layers)
    return args | own


def _is_tied(config: Mapping[str, Any]) -> bool:
    # transformers' own default where the key is left out: tied only in GPT-2
    return bool(config.get("tie_word_embeddings", config["model_type"] == "gpt2"))


def _attention(config: Mapping[str, Any], args: Mapping[str, Any]) -> dict[str, Any]:
    if args["kv_lora_rank"] is not None:
        return {"multi_latent_attention": True, "qk_layernorm": True}
    groups = config.get("num_key_value_heads")
    grouped = groups is not None and groups != args["num_attention_heads"]
    qk_norm = config["model_type"] in ("qwen3", "qwen3_moe")
    return {"group_query_attention": grouped, "num_query_groups": groups, "qk_layernorm": qk_norm}


def _bias(config: Mapping[str, Any]) -> dict[str, Any]:
    is_gpt2, is_qwen2 = config["model_type"] == "gpt2", config["model_type"] in ("qwen2", "qwen2_moe")
    return {
        "normalization": "LayerNorm" if is_gpt2 else "RMSNorm",
        "add_bias_linear": is_gpt2,
        "add_qkv_bias": is_qwen2,
        "position_embedding_type": "learned_absolute" if is_gpt2 else "rope",
    }


def _experts(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """The layers with a mixture of experts, and their shared experts. DeepSeek names these layers by
    first_k_dense_replace, Qwen by decoder_sparse_step and mlp_only_layers.
    """
    given, dense = Arguments(config), config.get("mlp_only_layers") or []
    if not isinstance(dense, list):
        raise PerfError(f"config.json: mlp_only_layers is {dense!r}; write a list of layers")
    first, every = given.integer("first_k_dense_replace", 0, least=0), given.integer("moe_layer_freq", 1)
    step = given.integer("decoder_sparse_step", 1)
    is_moe = [
        layer >= first and layer % every == 0 and (layer + 1) % step == 0 and layer not in dense
        for layer in range(layers)
    ]
    shared, gated = config.get("shared_expert_intermediate_size"), config["model_type"] == "qwen2_moe"
    if shared is None and config.get("n_shared_experts"):
        shared = given.integer("n_shared_experts") * given.integer("moe_intermediate_size")
    return {
        "moe_layer_freq": [int(one) for one in is_moe],
        "moe_shared_expert_intermediate_size": shared,
        "moe_shared_expert_gate": gated,
    }


def _window(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    # transformers counts the query's own key, Megatron does not. Qwen has a switch of its own, and windows in
    # the upper layers only.

    given = Arguments(config)
    size = given.optional("sliding_window")
    has_switch = config["model_type"].startswith("qwen")
    if size is None or not config.get("use_sliding_window", not has_switch):
        return {}
    if has_switch:
        below = given.integer("max_window_layers", 0, least=0)
        return {
            "window_size": (size - 1, 0),
            "window_attn_skip_freq": [int(layer >= below) for layer in range(layers)],
        }
    return {"window_size": (size - 1, 0)}
