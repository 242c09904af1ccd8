"""A Qwen2's weights under Megatron-Core's names, and back: as verl's bridges do it for real models."""

from __future__ import annotations

from collections.abc import Mapping

import torch

Weights = Mapping[str, torch.Tensor]
_ENDS = {
    "embedding.word_embeddings.weight": "model.embed_tokens.weight",
    "decoder.final_layernorm.weight": "model.norm.weight",
    "output_layer.weight": "lm_head.weight",
}
_IN_LAYER = {
    "input_layernorm.weight": "input_layernorm.weight",
    "self_attention.linear_proj.weight": "self_attn.o_proj.weight",
    "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
    "mlp.linear_fc2.weight": "mlp.down_proj.weight",
}
_PROJECTIONS = ("q", "k", "v")


def to_megatron(weights: Weights, layers: int, groups: int) -> dict[str, torch.Tensor]:
    """Of a model with so many layers, whose heads share keys and values in so many groups."""
    made = {ours: weights[theirs] for ours, theirs in _names(layers).items()}
    for layer in range(layers):
        ours, theirs = f"decoder.layers.{layer}.", f"model.layers.{layer}."
        for kind in ("weight", "bias"):
            parts = [weights[f"{theirs}self_attn.{name}_proj.{kind}"] for name in _PROJECTIONS]
            # Megatron-Core has the queries, the key and the value of a group together.
            by_group = [part.unflatten(0, (groups, -1)) for part in parts]
            made[f"{ours}self_attention.linear_qkv.{kind}"] = torch.cat(by_group, dim=1).flatten(0, 1)
        gate, up = (weights[f"{theirs}mlp.{name}_proj.weight"] for name in ("gate", "up"))
        made[f"{ours}mlp.linear_fc1.weight"] = torch.cat([gate, up])
    return made


def to_qwen(weights: Weights, layers: int, groups: int, heads: int) -> dict[str, torch.Tensor]:
    """The other way round; `heads`: of a layer's attention."""
    made = {theirs: weights[ours].clone() for ours, theirs in _names(layers).items()}
    for layer in range(layers):
        ours, theirs = f"decoder.layers.{layer}.", f"model.layers.{layer}."
        for kind in ("weight", "bias"):
            joined = weights[f"{ours}self_attention.linear_qkv.{kind}"].unflatten(0, (groups, -1))
            head = joined.shape[1] // (heads // groups + 2)
            for name, part in zip(
                _PROJECTIONS, joined.split([head * heads // groups, head, head], dim=1), strict=True
            ):
                made[f"{theirs}self_attn.{name}_proj.{kind}"] = part.flatten(0, 1).clone()
        gate, up = weights[f"{ours}mlp.linear_fc1.weight"].chunk(2)
        made[f"{theirs}mlp.gate_proj.weight"], made[f"{theirs}mlp.up_proj.weight"] = gate.clone(), up.clone()
    return made


def _names(layers: int) -> dict[str, str]:
    """Those of tensors that both models have alike."""
    in_layers = {
        f"decoder.layers.{layer}.{ours}": f"model.layers.{layer}.{theirs}"
        for layer in range(layers)
        for ours, theirs in _IN_LAYER.items()
    }
    return _ENDS | in_layers
