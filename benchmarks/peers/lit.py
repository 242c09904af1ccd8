"""litgpt's formula; it takes a litgpt model, built on the meta device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.peers import UnsupportedModelError
from benchmarks.peers.transformers_style import deepseek_experts
from flagscale_perf.flops_calculator import ModelShape

ADAPTED = {
    "linear_qkv": ("lora_query", "lora_key", "lora_value"),
    "linear_proj": ("lora_projection",),
    "linear_fc1": ("lora_mlp",),
    "linear_fc2": ("lora_mlp",),
}
PARTS = {"embedding": "transformer.wte", "output_layer": "lm_head"}


def load(name: str) -> Callable[[dict[str, Any], ModelShape], float]:
    import torch
    from litgpt import lora
    from litgpt import model as plain
    from litgpt.utils import estimate_flops

    def formula(args: dict[str, Any], shape: ModelShape) -> float:
        package = lora if shape.lora else plain  # the one for adapters knows no latent attention
        config = package.Config(block_size=args["seq_length"], **_sizes(shape), **_adapters(shape))
        with torch.device("meta"):
            model = package.GPT(config)
        if shape.lora:
            lora.mark_only_lora_as_trainable(model)
        for frozen in shape.frozen:
            model.get_submodule(
                PARTS.get(frozen) or frozen.replace("layers.", "transformer.h.")
            ).requires_grad_(False)
        return args["batch"] * estimate_flops(model, training=True)

    return formula


def _sizes(shape: ModelShape) -> dict[str, Any]:
    if shape.mtp_layers or shape.output_gate:
        raise UnsupportedModelError("no further prediction, no output gate")
    return (
        {
            "n_layer": shape.layers,
            "n_embd": shape.hidden,
            "n_head": shape.heads,
            "head_size": shape.head_dim,
            "padded_vocab_size": shape.vocab,
            "vocab_size": shape.vocab,
            "n_query_groups": shape.kv_groups,
            "intermediate_size": shape.ffn,
            "bias": shape.linear_bias,
            "attn_bias": shape.qkv_bias,
            "norm_qk": shape.qk_norm,
            "norm_class_name": "LayerNorm" if shape.norm_bias else "RMSNorm",
            "mlp_class_name": "LLaMAMLP" if shape.gated else "GptNeoxMLP",
        }
        | _latent(shape)
        | _experts(shape)
    )


def _latent(shape: ModelShape) -> dict[str, Any]:
    if shape.latent is None:
        return {}
    if shape.latent.q_lora_rank is None:
        raise UnsupportedModelError("latent attention only with a low rank for queries")
    ranks = {
        "q_lora_rank": shape.latent.q_lora_rank,
        "kv_lora_rank": shape.latent.kv_lora_rank,
        "v_head_dim": shape.latent.v_head_dim,
    }
    widths = {
        "qk_nope_head_dim": shape.latent.qk_head_dim,
        "qk_rope_head_dim": shape.latent.qk_pos_emb_head_dim,
    }
    return {"latent_attention": ranks | widths, "n_query_groups": shape.heads, "norm_qk": False}


def _experts(shape: ModelShape) -> dict[str, Any]:
    if shape.experts is None:
        return {}
    if not shape.gated or shape.experts.latent_size:
        raise UnsupportedModelError("only experts of three matrices and full width")
    dense, shared = deepseek_experts(shape.experts)
    return {
        "mlp_class_name": "LLaMAMoE",
        "n_expert": shape.experts.count,
        "n_expert_per_token": shape.experts.topk,
        "n_shared_expert": shared or None,
        "moe_intermediate_size": shape.experts.ffn_hidden_size,
        "first_k_dense_replace": dense,
    }


def _adapters(shape: ModelShape) -> dict[str, Any]:
    if shape.lora is None:
        return {}
    targets = set(shape.lora.targets)
    if (
        not targets <= set(ADAPTED)
        or len(targets & {"linear_fc1", "linear_fc2"}) == 1
        or shape.experts
        or shape.latent
    ):
        raise UnsupportedModelError("adapters only on attention and the whole dense feed-forward block")
    return {"lora_r": shape.lora.dim} | dict.fromkeys(
        (name for target in targets for name in ADAPTED[target]), True
    )
