"""Models of transformers to count, each by its config.json, in the form that `transformers_counter` reads."""

from __future__ import annotations

from typing import Any

Args = dict[str, Any]

STEP: Args = {"batch": 2, "seq_length": 21}
LLAMA: Args = {
    "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 96, "tie_word_embeddings": False,
}  # fmt: skip
MOE = LLAMA | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "head_dim": 12}


def step(config: Args, **options: Any) -> Args:
    """One model and what is done with it."""
    return STEP | {"config": config} | options


# What the formulas counted before there were other models than decoders, from their config.json.
DECODERS: dict[str, Args] = {
    "hf_gpt2": step({"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 96,
                     "n_positions": 32, "n_inner": 80, "tie_word_embeddings": True}),
    "hf_llama": step(LLAMA),
    "hf_qwen2": step(LLAMA | {"model_type": "qwen2"}),
    "hf_qwen3": step(LLAMA | {"model_type": "qwen3", "head_dim": 12, "tie_word_embeddings": True}),
    "hf_qwen3_moe": step(MOE | {"model_type": "qwen3_moe", "mlp_only_layers": [0]}),
    "hf_mixtral": step(LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 3}),
}  # fmt: skip
