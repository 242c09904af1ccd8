"""The same small model in the files of several tools."""

from __future__ import annotations

from copy import deepcopy

from flagscale_perf.flops.files import args_from_file
from flagscale_perf.flops_calculator import ModelShape

LLAMA = {
    "num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_query_groups": 2,
    "ffn_hidden_size": 96, "normalization": "RMSNorm",
    "add_bias_linear": False, "position_embedding_type": "rope",
}  # fmt: skip
ARGUMENTS = LLAMA | {
    "group_query_attention": True, "swiglu": True, "untie_embeddings_and_output_weights": True,
    "padded_vocab_size": 256,
}  # fmt: skip
BRIDGE = {
    "model": LLAMA | {
        "_target_": "megatron.bridge.models.llama.llama_provider.Llama3ModelProvider8B",
        "activation_func": {"_target_": "torch.nn.functional.silu", "_call_": False},
        "transformer_layer_spec": {"_target_": "megatron.bridge.models.gpt_provider.default_layer_spec"},
        "gated_linear_unit": True, "num_moe_experts": None, "share_embeddings_and_output_weights": False,
        "seq_length": 128, "vocab_size": 256,
    },
    "tokenizer": {"tokenizer_type": "NullTokenizer", "vocab_size": 250},
    "train": {"global_batch_size": 8, "micro_batch_size": 1},
    "peft": None,
}  # fmt: skip
YAML_CFG = {
    "language_model": LLAMA | {"activation_func": "swiglu"},
    "model_parallel": {"tensor_model_parallel_size": 1},
    "untie_embeddings_and_output_weights": True,
    "tokenizer_type": "NullTokenizer",
    "vocab_size": 255,
}
EXPERTS = {"num_moe_experts": 4, "moe_ffn_hidden_size": 32, "moe_router_topk": 2, "moe_layer_freq": [0, 1]}
OF_EXPERTS = {"num_experts": 4, "moe_ffn_hidden_size": 32, "moe_router_topk": 2, "moe_layer_freq": [0, 1]}
SHARED = {"moe_shared_expert_intermediate_size": 48}
CORE = LLAMA | {"gated_linear_unit": True, "share_embeddings_and_output_weights": False, "vocab_size": 256}
MLA = {
    "multi_latent_attention": True, "q_lora_rank": None, "kv_lora_rank": 16, "qk_head_dim": 8,
    "qk_pos_emb_head_dim": 4, "v_head_dim": 8,
}  # fmt: skip


def shape(content) -> ModelShape:
    return ModelShape.from_args(args_from_file(content))


def bridge(model=None, **sections):
    content = deepcopy(BRIDGE) | sections
    content["model"] |= model or {}
    return content


def same(content, arguments) -> None:
    assert shape(content) == ModelShape.from_args(arguments)
