"""Models to count: named ones for every family and option, and a seeded source of random ones. Megatron's
argument names.

`batch` and `seq_length` are the step's; `meta` runs on the meta device, where a full-size model needs no
memory.
"""

from __future__ import annotations

import random
from typing import Any

Args = dict[str, Any]

GPT: Args = {
    "num_layers": 2, "hidden_size": 48, "num_attention_heads": 6, "ffn_hidden_size": 144,
    "padded_vocab_size": 256, "normalization": "LayerNorm", "add_bias_linear": True,
    "position_embedding_type": "learned_absolute", "max_position_embeddings": 64, "seq_length": 24,
    "batch": 2,
}  # fmt: skip
LLAMA = GPT | {
    "swiglu": True, "normalization": "RMSNorm", "add_bias_linear": False, "position_embedding_type": "rope",
    "untie_embeddings_and_output_weights": True,
}  # fmt: skip
GQA = LLAMA | {"group_query_attention": True, "num_query_groups": 2}
MOE = GQA | {"num_experts": 8, "moe_router_topk": 2, "moe_ffn_hidden_size": 40}
SHARED = MOE | {"moe_shared_expert_intermediate_size": 56, "moe_shared_expert_gate": True}
MLA = LLAMA | {
    "multi_latent_attention": True, "q_lora_rank": None, "kv_lora_rank": 20, "qk_head_dim": 8,
    "qk_pos_emb_head_dim": 4, "v_head_dim": 12, "qk_layernorm": True,
}  # fmt: skip
MTP = {"mtp_num_layers": 1, "mtp_loss_scaling_factor": 0.1}
DEEPSEEK = MLA | MTP | {
    "q_lora_rank": 28, "num_layers": 3, "num_experts": 8, "moe_router_topk": 3, "moe_ffn_hidden_size": 24,
    "moe_layer_freq": [0, 1, 1], "moe_shared_expert_intermediate_size": 48,
}  # fmt: skip
UNIFORM = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
BLOCK = {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 1}
ALL_LINEAR = ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]
FROZEN_BOTTOM = {"num_layers": 3, "frozen": ["embedding", "layers.0", "layers.1"]}
PADDED = {"moe_pad_expert_input_to_capacity": True}


def selective(*modules: str) -> Args:
    """Selective recomputation of these modules."""
    return {"recompute_granularity": "selective", "recompute_modules": list(modules)}


def lora(*targets: str) -> Args:
    """Adapters on these layers, everything else frozen."""
    return {"peft_type": "lora", "lora_dim": 4, "lora_target_modules": list(targets)}


T5 = GPT | {
    "model_family": "t5", "encoder_num_layers": 3, "num_layers": 2, "decoder_seq_length": 10,
}  # fmt: skip
BERT = GPT | {"model_family": "bert"}

NAMED: dict[str, Args] = {
    "gpt": GPT,
    "gpt_kv_channels": GPT | {"kv_channels": 12},
    "gpt_quick_geglu": GPT | {"quick_geglu": True},
    "gpt_squared_relu": GPT | {"squared_relu": True},
    "gpt_untied": GPT | {"untie_embeddings_and_output_weights": True},
    "gpt_rope_one_layer": GPT | {"position_embedding_type": "rope", "num_layers": 1},
    "llama": LLAMA,
    "llama_gqa": GQA,
    "llama_mqa": GQA | {"num_query_groups": 1},
    "llama_groups_without_gqa": LLAMA | {"num_query_groups": 2},
    "llama_layernorm": LLAMA | {"normalization": "LayerNorm"},
    "llama_batch_1": GQA | {"batch": 1},
    "llama_odd_length": GQA | {"seq_length": 23, "batch": 3},
    "llama_window": GQA | {"window_size": (7, 0)},
    "aquila": LLAMA | {"ffn_hidden_size": 176, "multiple_of": 16, "hidden_dim_multiplier": 1.3},
    "qwen2": GQA | {"add_qkv_bias": True, "untie_embeddings_and_output_weights": False},
    "qwen3": GQA | {"qk_layernorm": True, "kv_channels": 16, "untie_embeddings_and_output_weights": False},
    "qwen3_moe": MOE | {"qk_layernorm": True, "kv_channels": 16, "num_experts": 16, "moe_router_topk": 4,
                        "moe_ffn_hidden_size": 16},
    "qwen2_moe": SHARED | {"add_qkv_bias": True},
    "mixtral": MOE,
    "mixtral_top_1": MOE | {"moe_router_topk": 1},
    "mixtral_gelu": MOE | {"swiglu": False},
    "moe_every_second": MOE | {"num_layers": 4, "moe_layer_freq": 2},
    "moe_list": SHARED | {"num_layers": 3, "moe_layer_freq": [0, 1, 1]},
    "moe_shared_no_gate": SHARED | {"moe_shared_expert_gate": False},
    "moe_capacity": MOE | PADDED | {"moe_expert_capacity_factor": 1.3},
    "moe_capacity_micro_batches": MOE | PADDED | {"moe_expert_capacity_factor": 1.3, "batch": 6,
                                                  "micro_batch_size": 2},
    "mla": MLA,
    "mla_q_lora": MLA | {"q_lora_rank": 28},
    "mla_no_norm": MLA | {"q_lora_rank": 28, "qk_layernorm": False},
    "deepseek": DEEPSEEK,
    "deepseek_dense_last": DEEPSEEK | {"moe_layer_freq": [0, 1, 0]},
    "mtp_dense": GQA | MTP,
    "mtp_two": MOE | MTP | {"mtp_num_layers": 2},
    "mtp_tied": GQA | MTP | {"untie_embeddings_and_output_weights": False},
    "recompute_uniform": GQA | UNIFORM | {"num_layers": 3},
    "recompute_uniform_chunks": GQA | UNIFORM | {"num_layers": 4, "recompute_num_layers": 2},
    "recompute_uniform_deepseek": DEEPSEEK | UNIFORM,
    "recompute_block": MOE | BLOCK | {"num_layers": 3, "recompute_num_layers": 2,
                                      "moe_layer_freq": [1, 0, 1]},
    "recompute_block_deepseek": DEEPSEEK | BLOCK,
    "recompute_core": GQA | selective("core_attn"),
    "recompute_mlp": DEEPSEEK | selective("mlp"),
    "recompute_moe": SHARED | selective("moe"),
    "recompute_shared": SHARED | selective("shared_experts"),
    "recompute_moe_and_shared": SHARED | selective("moe", "shared_experts"),
    "recompute_up_proj": MLA | selective("mla_up_proj"),
    "recompute_up_proj_q_lora": DEEPSEEK | selective("mla_up_proj", "core_attn"),
    "recompute_norm": GQA | selective("layernorm"),
    "recompute_capacity": SHARED | PADDED | selective("moe") | {"moe_expert_capacity_factor": 1.3},
    "lora": GQA | lora(*ALL_LINEAR),
    "lora_qkv": GQA | lora("linear_qkv"),
    "lora_mlp": GPT | lora("linear_fc1", "linear_fc2"),
    "lora_down": LLAMA | lora("linear_fc2"),
    "lora_moe": SHARED | MTP | lora(*ALL_LINEAR),
    "lora_mla": DEEPSEEK | lora("linear_q_down_proj", "linear_fc1"),
    "lora_mla_kv": DEEPSEEK | lora("linear_kv_up_proj"),
    "frozen_embedding": GPT | {"frozen": ["embedding"]},
    "frozen_bottom": GQA | FROZEN_BOTTOM,
    "frozen_middle": MOE | {"num_layers": 3, "frozen": ["layers.1"]},
    "frozen_bottom_recompute": GQA | UNIFORM | FROZEN_BOTTOM,
    "frozen_bottom_recompute_in_twos": GQA | UNIFORM | {"num_layers": 4, "recompute_num_layers": 2,
                                                        "frozen": ["embedding", "layers.0", "layers.2"]},
    "frozen_embedding_recompute": GPT | UNIFORM | {"frozen": ["embedding"]},
    "frozen_middle_recompute": MOE | BLOCK | {"num_layers": 3, "recompute_num_layers": 2,
                                              "frozen": ["layers.1"]},
    "frozen_bottom_core": GQA | selective("core_attn") | FROZEN_BOTTOM,
    "frozen_bottom_moe": SHARED | selective("moe", "shared_experts") | FROZEN_BOTTOM,
    "frozen_bottom_up_proj": MLA | selective("mla_up_proj") | FROZEN_BOTTOM,
    "lora_recompute": GQA | UNIFORM | lora(*ALL_LINEAR),
    "lora_down_recompute": LLAMA | UNIFORM | lora("linear_fc2"),
    "lora_moe_recompute": SHARED | MTP | BLOCK | lora(*ALL_LINEAR),
    "lora_mla_selective": DEEPSEEK | selective("core_attn", "mlp", "moe")
    | lora("linear_kv_down_proj", "linear_fc1"),
    "lora_frozen_bottom": GQA | FROZEN_BOTTOM | lora(*ALL_LINEAR),
    "lora_frozen_bottom_recompute": GQA | UNIFORM | FROZEN_BOTTOM | lora("linear_qkv", "linear_fc2"),
    "lora_frozen_middle_moe": SHARED | MTP | {"num_layers": 3, "frozen": ["layers.1"]} | lora(*ALL_LINEAR),
    "lora_frozen_top": DEEPSEEK | {"frozen": ["layers.2"]} | lora("linear_q_down_proj", "linear_fc1"),
    "frozen_output": GQA | {"frozen": ["output_layer"]},
}  # fmt: skip

ENCODERS: dict[str, Args] = {
    "t5": T5,
    "t5_gated": T5 | {"swiglu": True, "add_bias_linear": False, "kv_channels": 12},
    "t5_recompute": T5 | UNIFORM,
    "t5_recompute_core": T5 | selective("core_attn"),
    "bert": BERT,
    "bert_no_binary_head": BERT | {"bert_binary_head": False},
    "bert_recompute": BERT | UNIFORM,
}  # fmt: skip

# What FlagScale's bundled Megatron-Core (0.15) does not have yet.
NEWER: dict[str, Args] = {
    "output_gate": GQA | {"attention_output_gate": True},
    "output_gate_mha": GPT | {"attention_output_gate": True},
    "moe_latent": SHARED | {"moe_latent_size": 20},
    "moe_latent_recompute": SHARED | selective("moe") | {"moe_latent_size": 20},
    "moe_latent_capacity": MOE | PADDED | {"moe_latent_size": 20, "moe_expert_capacity_factor": 1.3},
}  # fmt: skip

BIG = {"meta": True, "batch": 1, "seq_length": 4096, "max_position_embeddings": 4096}
# On the meta device nobody knows where a token goes: experts' inputs are padded to a capacity that is their
# even share.
EVEN = {"moe_pad_expert_input_to_capacity": True, "moe_expert_capacity_factor": 1.0}
DEEPSEEK_V3 = MLA | BIG | EVEN | MTP | {
    "num_layers": 61, "hidden_size": 7168, "num_attention_heads": 128, "ffn_hidden_size": 18432,
    "padded_vocab_size": 129280, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_head_dim": 128,
    "qk_pos_emb_head_dim": 64, "v_head_dim": 128, "num_experts": 256, "moe_router_topk": 8,
    "moe_ffn_hidden_size": 2048,
    "moe_shared_expert_intermediate_size": 2048, "moe_layer_freq": [0] * 3 + [1] * 58,
}  # fmt: skip
FULL_SIZE: dict[str, Args] = {
    "gpt3_175b": GPT | BIG | {
        "num_layers": 96, "hidden_size": 12288, "num_attention_heads": 96, "ffn_hidden_size": 49152,
        "padded_vocab_size": 51200, "seq_length": 2048,
    },
    "llama3_8b": GQA | BIG | {
        "num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_query_groups": 8,
        "ffn_hidden_size": 14336, "padded_vocab_size": 128256, "seq_length": 8192,
        "max_position_embeddings": 8192,
    },
    "llama3_70b_recompute": GQA | BIG | UNIFORM | {
        "num_layers": 80, "hidden_size": 8192, "num_attention_heads": 64, "num_query_groups": 8,
        "ffn_hidden_size": 28672, "padded_vocab_size": 128256,
    },
    "qwen3_0_6b": GQA | BIG | {
        "num_layers": 28, "hidden_size": 1024, "num_attention_heads": 16, "num_query_groups": 8,
        "kv_channels": 128, "ffn_hidden_size": 3072, "padded_vocab_size": 151936, "qk_layernorm": True,
        "untie_embeddings_and_output_weights": False,
    },
    "qwen2_5_7b_lora": GQA | BIG | lora(*ALL_LINEAR) | {
        "num_layers": 28, "hidden_size": 3584, "num_attention_heads": 28, "num_query_groups": 4,
        "ffn_hidden_size": 18944, "padded_vocab_size": 152064, "add_qkv_bias": True, "lora_dim": 16,
    },
    "mixtral_8x7b": MOE | BIG | EVEN | {
        "num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_query_groups": 8,
        "ffn_hidden_size": 14336, "moe_ffn_hidden_size": 14336, "padded_vocab_size": 32000,
    },
    "deepseek_v3_four_layers": DEEPSEEK_V3 | {"num_layers": 4, "moe_layer_freq": [0, 0, 0, 1]},
}  # fmt: skip
# Some 90 s: its 15 000 experts are counted one by one.
SLOW: dict[str, Args] = {"deepseek_v3_671b": DEEPSEEK_V3}


def random_configurations(number: int, seed: int) -> dict[str, Args]:
    """That many valid models, any two options together that Megatron allows together."""
    source = random.Random(seed)
    return {f"seed_{seed}_number_{index}": _random_configuration(source) for index in range(number)}


def random_frozen_and_recomputed(number: int, seed: int) -> dict[str, Args]:
    """That many of the above in which weights are frozen, or adapted, and parts are recomputed."""
    source, made = random.Random(seed), dict[str, Args]()
    while len(made) < number:
        args = _random_configuration(source)
        chosen = ("peft_type", "frozen", "recompute")
        args = {name: value for name, value in args.items() if not name.startswith(chosen)}
        both = args | _random_frozen(source, args) | _random_recompute(source, args)
        # Megatron-Core's own way to repeat up-projections loses gradients below frozen weights
        if "mla_up_proj" not in both.get("recompute_modules", ()):
            made[f"frozen_seed_{seed}_number_{len(made)}"] = both
    return made


def _random_configuration(source: random.Random) -> Args:
    heads = source.choice([2, 3, 4, 6])
    args = GPT | {
        "num_layers": source.randint(1, 4),
        "num_attention_heads": heads,
        "hidden_size": heads * source.choice([4, 8, 12]),
        "ffn_hidden_size": 4 * source.randint(2, 30),
        "padded_vocab_size": 8 * source.randint(4, 60),
        "seq_length": source.randint(3, 33),
        "batch": source.randint(1, 3),
        "normalization": source.choice(["LayerNorm", "RMSNorm"]),
        "untie_embeddings_and_output_weights": source.random() < 0.5,
        "qk_layernorm": source.random() < 0.3,
        "add_bias_linear": source.random() < 0.5,
    }
    activation = source.choice(["swiglu", "quick_geglu", "squared_relu", None])
    if activation:
        args[activation] = True
    args |= source.choice([_random_attention, _random_latent])(source, args)
    if source.random() < 0.5:
        args |= _random_experts(source, args)
    if source.random() < 0.3:
        args |= MTP | {"mtp_num_layers": source.randint(1, 2)}
    return args | source.choice([_random_recompute, _random_frozen])(source, args)


def _random_attention(source: random.Random, args: Args) -> Args:
    divisors = [
        number
        for number in range(1, args["num_attention_heads"] + 1)
        if args["num_attention_heads"] % number == 0
    ]
    chosen = {"kv_channels": source.choice([None, 4, 8, 10]), "num_query_groups": source.choice(divisors)}
    return chosen | {"group_query_attention": source.random() < 0.6, "add_qkv_bias": source.random() < 0.3}


def _random_latent(source: random.Random, args: Args) -> Args:
    return {
        "multi_latent_attention": True,
        "position_embedding_type": "rope",
        "q_lora_rank": source.choice([None, 10, 16]),
        "kv_lora_rank": source.randint(2, 20),
        "qk_head_dim": 2 * source.randint(1, 8),
        "qk_pos_emb_head_dim": 2 * source.randint(1, 4),
        "v_head_dim": source.randint(2, 12),
    }


def _random_experts(source: random.Random, args: Args) -> Args:
    count = source.choice([2, 4, 5, 8])
    layers = args["num_layers"]
    chosen: Args = {
        "add_bias_linear": False,
        "num_experts": count,
        "moe_router_topk": source.randint(1, count),
        "moe_ffn_hidden_size": 4 * source.randint(1, 10),
        "moe_layer_freq": source.choice([1, 2, [source.randint(0, 1) for _ in range(layers)]]),
    }
    if source.random() < 0.5:
        chosen |= {
            "moe_shared_expert_intermediate_size": 4 * source.randint(1, 12),
            "moe_shared_expert_gate": source.random() < 0.5,
        }
    return chosen


def _random_recompute(source: random.Random, args: Args) -> Args:
    kind = source.choice(["none", "uniform", "block", "selective"])
    if kind == "uniform":
        return UNIFORM | {
            "recompute_num_layers": 1
            if args.get("mtp_num_layers")
            else source.choice([1, args["num_layers"]])
        }
    if kind == "block":
        return BLOCK | {"recompute_num_layers": source.randint(1, args["num_layers"])}
    if kind == "selective":
        modules = ["core_attn"]
        modules += (
            [] if args["add_bias_linear"] else ["mlp"]
        )  # with a bias Megatron-Core never comes to an end
        modules += ["mla_up_proj"] if args.get("multi_latent_attention") else []
        modules += ["moe"] if args.get("num_experts") else []
        modules += ["shared_experts"] if args.get("moe_shared_expert_intermediate_size") else []
        return selective(*source.sample(modules, source.randint(1, len(modules))))
    return {}


def _random_frozen(source: random.Random, args: Args) -> Args:
    """Adapters, parts that are frozen, their adapters among them, or both."""
    if source.random() < 0.4:
        return _random_parts(source, args)
    adapters = _random_adapters(source, args)
    if source.random() < 0.7:
        return adapters
    # something must be left to train: those of the last layer
    names = ["embedding", *(f"layers.{layer}" for layer in range(args["num_layers"] - 1))]
    return adapters | {"frozen": source.sample(names, source.randint(1, len(names)))}


def _random_adapters(source: random.Random, args: Args) -> Args:
    attention = ["linear_qkv", "linear_proj"]
    if args.get("multi_latent_attention"):
        queries = (
            ["linear_q_proj"] if args["q_lora_rank"] is None else ["linear_q_down_proj", "linear_q_up_proj"]
        )
        attention = [*queries, "linear_kv_down_proj", "linear_kv_up_proj", "linear_proj"]
    targets = [*attention, "linear_fc1", "linear_fc2"]
    chosen = lora(*source.sample(targets, source.randint(1, len(targets))))
    return chosen | {"lora_dim": source.randint(1, 6)}


def _random_parts(source: random.Random, args: Args) -> Args:
    names = ["embedding", "output_layer", *(f"layers.{layer}" for layer in range(args["num_layers"]))]
    if not args["untie_embeddings_and_output_weights"]:
        names.remove("output_layer")
    return {"frozen": source.sample(names, source.randint(0, len(names) - 1))}
