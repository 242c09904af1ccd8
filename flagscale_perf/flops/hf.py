"""Translates a Hugging Face `config.json` into Megatron's argument names, without transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.hf_hybrid import HYBRIDS
from flagscale_perf.spine.errors import PerfError

# Training arguments that a config.json may hold in addition to what transformers reads.
OF_TRAINING = (
    *("decoder_seq_length", "image_grids", "frozen", "freeze_ViT", "freeze_LM", "recompute_granularity"),
    *("recompute_method", "recompute_num_layers", "recompute_modules", "micro_batch_size", "mtp_num_layers"),
)

# argument -> keys that may hold it, the first one present wins
KEYS = {
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
    "q_lora_rank": ("q_lora_rank",),
    "kv_lora_rank": ("kv_lora_rank",),
    "qk_head_dim": ("qk_nope_head_dim",),
    "qk_pos_emb_head_dim": ("qk_rope_head_dim",),
    "v_head_dim": ("v_head_dim",),
}

# Which layers see a window, by number and max_window_layers, and which families' layer_types say otherwise.
_WINDOWS: dict[str, Callable[[int, int], bool]] = {
    "mistral": lambda layer, below: True,
    "mixtral": lambda layer, below: True,
    "qwen2": lambda layer, below: layer >= below,
    "qwen2_moe": lambda layer, below: layer % 2 == 0 and layer < below,
    "qwen3": lambda layer, below: layer >= below,
    "qwen3_moe": lambda layer, below: True,
}
_BY_TYPE = ("qwen2", "qwen2_moe", "qwen3")
# The families that read a key, and those that do not: in a config of any other it changes nothing.
_LATENT_FAMILIES = "deepseek_v2 deepseek_v3 deepseek_v32 kimi_linear"
_SPARSE_BY_STEP = "qwen2_moe qwen3_moe qwen3_next"
_READ_BY = {
    "attention_bias": f"{_LATENT_FAMILIES} bamba granitemoehybrid llama qwen3 qwen3_5_moe_text"
    " qwen3_5_text qwen3_moe qwen3_next",
    "mlp_bias": "bamba deepseek_v2 llama nemotron_h",
    "kv_lora_rank": _LATENT_FAMILIES,
    "num_local_experts": f"{_LATENT_FAMILIES} granitemoehybrid mixtral nemotron_h qwen3_moe",
    "num_experts": f"{_SPARSE_BY_STEP} deepseek_v2 deepseek_v32 kimi_linear mixtral qwen3_5_moe_text",
    "n_routed_experts": f"{_LATENT_FAMILIES} nemotron_h",
    "moe_intermediate_size": f"{_LATENT_FAMILIES} {_SPARSE_BY_STEP} nemotron_h qwen3_5_moe_text",
    "first_k_dense_replace": _LATENT_FAMILIES,
    "n_shared_experts": _LATENT_FAMILIES,
    "shared_expert_intermediate_size": "qwen2_moe qwen3_5_moe_text qwen3_next",
    "decoder_sparse_step": _SPARSE_BY_STEP,
    "mlp_only_layers": _SPARSE_BY_STEP,
    **dict.fromkeys(("n_layer", "n_embd", "n_head", "n_inner", "n_positions"), "gpt2"),
}
_NOT_READ_BY = {
    **dict.fromkeys(("head_dim", "intermediate_size", "num_key_value_heads"), "gpt2"),
    "tie_word_embeddings": "kimi_linear nemotron_h",
}
# Families that were held against what transformers builds; of any other one every key counts.
_TRIED = {*" ".join(_READ_BY.values()).split(), "mamba2", "mistral", "qwen2", "rwkv"}
_WITHOUT_WIDTH = ("gpt2", "mamba2", "rwkv")  # no dense block, or one of four times the model's width
# Zero experts are none only in the other families: these build mixtures of nothing.
_ALWAYS_MIXED = f"{_LATENT_FAMILIES} mixtral qwen3_5_moe_text"
_HEADS = ("ForCausalLM", "ForConditionalGeneration", "ForMaskedLM", "ForPreTraining", "LMHeadModel")
# What transformers builds where a config.json leaves a key out and the model is another one then: the
# defaults of its classes. (n_routed_experts stands for every name of the number of experts.)
_LATENT = {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
_DEEPSEEK_V3 = {
    **(_LATENT | {"v_head_dim": 128, "n_routed_experts": 256, "num_experts_per_tok": 8}),
    **{"moe_intermediate_size": 2048, "n_shared_experts": 1, "first_k_dense_replace": 3},
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "bamba": {"num_key_value_heads": 8},
    "deepseek_v2": _LATENT
    | {"v_head_dim": 128, "n_routed_experts": 64, "moe_intermediate_size": 1407, "n_shared_experts": 2},
    "deepseek_v3": _DEEPSEEK_V3,
    "deepseek_v32": _DEEPSEEK_V3,
    "gpt2": {"n_positions": 1024},
    "granitemoehybrid": {
        **{"num_key_value_heads": 32, "num_experts_per_tok": 2},
        **{"num_local_experts": 8, "shared_intermediate_size": 1024},
    },
    "kimi_linear": _LATENT
    | {"q_lora_rank": None, "v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1}
    | {"num_experts_per_tok": 8},
    "mamba2": {"n_groups": 8},
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "mixtral": {"num_key_value_heads": 8, "n_routed_experts": 8, "num_experts_per_tok": 2},
    "nemotron_h": {
        "num_key_value_heads": 8,
        "head_dim": 128,
        "n_groups": 8,
        "mamba_head_dim": 64,
        "chunk_size": 128,
    },
    "qwen2": {"num_key_value_heads": 32},
    "qwen2_moe": {
        **{"num_key_value_heads": 16, "n_routed_experts": 60, "num_experts_per_tok": 4},
        **{"moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "qkv_bias": True},
    },
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128},
    "qwen3_5_moe_text": {
        **{"num_key_value_heads": 2, "head_dim": 256, "n_routed_experts": 256, "num_experts_per_tok": 8},
        **{"moe_intermediate_size": 512, "shared_expert_intermediate_size": 512},
    },
    "qwen3_5_text": {"num_key_value_heads": 4, "head_dim": 256},
    "qwen3_moe": {
        **{"num_key_value_heads": 4, "n_routed_experts": 128, "num_experts_per_tok": 8},
        **{"moe_intermediate_size": 768},
    },
    "qwen3_next": {
        **{"num_key_value_heads": 2, "head_dim": 256, "n_routed_experts": 512, "num_experts_per_tok": 10},
        **{"moe_intermediate_size": 512, "shared_expert_intermediate_size": 512},
    },
}


def is_hf(content: Mapping[str, Any]) -> bool:
    """Whether this is a `config.json`. T5's contains num_layers, as Megatron's arguments do."""
    return "model_type" in content and ("num_layers" not in content or "d_model" in content)


def args_from_hf(config: Mapping[str, Any], family: str, gated: bool) -> dict[str, Any]:
    """Megatron-style arguments of what transformers builds from a config; the vocabulary is not padded.

    Raises PerfError for a missing key, and for weights that are not trained as they are.

    Args:
        config: the file's contents.
        family: the one that its model_type belongs to.
        gated: whether its feed-forward blocks have three matrices.
    """
    model = config["model_type"]
    read = {name: value for name, value in config.items() if _is_read(model, name)}
    _refuse_contradictions(read)
    config = _DEFAULTS.get(model, {}) | read
    args: dict[str, Any] = {
        "model_family": family,
        "swiglu": gated,
        "untie_embeddings_and_output_weights": not _is_tied(config),
    }
    for name, keys in KEYS.items():
        key = next((key for key in keys if config.get(key) is not None), keys[0])
        args[name] = Arguments(config).integer(key, 0, least=name != "num_experts") or None
    own = HYBRIDS[model](config) if model in HYBRIDS else {}
    _require("num_layers", "hidden_size", "num_attention_heads", "padded_vocab_size", of=args | own)
    layers = Arguments(args | own).layers()
    args |= _attention(config, args) | _bias(config) | _window(config, layers)
    if args["num_experts"]:
        args |= _experts(config, layers)
    args |= own
    if args["num_experts"]:
        _require("moe_router_topk", of=args)
    if model not in _WITHOUT_WIDTH and _is_dense(args):
        _require("ffn_hidden_size", of=args)
    return args


def _is_read(model: str, name: str) -> bool:
    if model in _TRIED and name in _READ_BY:
        return model in _READ_BY[name].split()
    return model not in _NOT_READ_BY.get(name, "").split()


def _require(*names: str, of: Mapping[str, Any]) -> None:
    for name in names:
        if of.get(name) is None:
            raise PerfError(f"config.json: {KEYS[name][0]} is missing; add it")


def _is_dense(args: Mapping[str, Any]) -> bool:
    """Whether a feed-forward block has the width of dense ones."""
    if "hybrid_layer_pattern" in args:
        return "-" in str(args["hybrid_layer_pattern"])
    mixed = args["num_experts"] and args["moe_ffn_hidden_size"] is not None
    return not (mixed and all(args.get("moe_layer_freq") or ()))


def refuse_untrained(config: Mapping[str, Any]) -> None:
    """Raises PerfError for what is not built or trained as its sizes say: a head that predicts no tokens and,
    in a part of the model, too, quantised weights, adapters and attention to another model.
    """
    heads = config.get("architectures") or ()
    for name in heads if isinstance(heads, list) else ():
        if not str(name).endswith(_HEADS):
            raise PerfError(
                f"config.json: architectures has {name!r}; only models that predict tokens are counted, "
                f"whose names end in {', '.join(_HEADS)}; write the one that is trained, or take it out"
            )
    _refuse_parts(config)


def _refuse_parts(config: Mapping[str, Any]) -> None:
    for name in ("quantization_config", "compression_config"):
        if config.get(name) is not None:
            raise PerfError(
                f"config.json: {name} is given, and quantised weights are not trained; take it out "
                "for a training of all weights"
            )
    for name in config:
        if str(name).startswith(("adapter", "dora", "lora_", "peft", "use_dora")):
            raise PerfError(f"config.json: {name} is given; adapters are not counted here; take it out")
    if Arguments(config).flag("add_cross_attention"):
        raise PerfError("config.json: add_cross_attention is true; such layers are not counted; take it out")
    for part in config.values():
        if isinstance(part, Mapping):
            _refuse_parts(part)


def _refuse_contradictions(read: Mapping[str, Any]) -> None:
    """Raises PerfError for two names of one size that differ, and for experts that are none."""
    for keys in KEYS.values():
        given = {key: read[key] for key in keys if read.get(key) is not None}
        if any(value != next(iter(given.values())) for value in given.values()):
            said = " and ".join(f"{key} is {value!r}" for key, value in given.items())
            raise PerfError(f"config.json: {said}, which are one size; leave one of them in the file")
    nothing = ["shared_expert_intermediate_size"]
    nothing += KEYS["num_experts"] if read["model_type"] in _ALWAYS_MIXED.split() else ()
    for name in nothing:
        if read.get(name) == 0:
            raise PerfError(
                f"config.json: {name} is 0, and {read['model_type']} builds such a block without weights; "
                "give a whole number above 0"
            )


def _is_tied(config: Mapping[str, Any]) -> bool:
    # transformers' own default where the key is left out: tied only in GPT-2
    if "tie_word_embeddings" not in config:
        return bool(config["model_type"] == "gpt2")
    return Arguments(config).flag("tie_word_embeddings")


def _attention(config: Mapping[str, Any], args: Mapping[str, Any]) -> dict[str, Any]:
    if args["kv_lora_rank"] is not None:
        return {"multi_latent_attention": True, "qk_layernorm": True}
    groups = config.get("num_key_value_heads")
    grouped = groups is not None and groups != args["num_attention_heads"]
    qk_norm = config["model_type"] in ("qwen3", "qwen3_moe")
    return {"group_query_attention": grouped, "num_query_groups": groups, "qk_layernorm": qk_norm}


def _bias(config: Mapping[str, Any]) -> dict[str, Any]:
    is_gpt2, model = config["model_type"] == "gpt2", config["model_type"]
    attention, mlp = (Arguments(config).flag(name) for name in ("attention_bias", "mlp_bias"))
    if mlp and (model != "llama" or not attention):
        raise PerfError(
            "config.json: mlp_bias is true; it is counted in a llama that has attention_bias; take it out"
        )
    is_qwen2 = model == "qwen2" or (model == "qwen2_moe" and Arguments(config).flag("qkv_bias"))
    return {
        "normalization": "LayerNorm" if is_gpt2 else "RMSNorm",
        "add_bias_linear": is_gpt2 or mlp,
        "add_qkv_bias": is_qwen2 or attention,
        "add_out_bias": attention,
        "position_embedding_type": "learned_absolute" if is_gpt2 else "rope",
    }


def _experts(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """The layers with a mixture of experts, and their shared experts. DeepSeek names these layers by
    first_k_dense_replace, Qwen by decoder_sparse_step and mlp_only_layers; others have them in every layer.
    """
    given, dense = Arguments(config), config.get("mlp_only_layers") or []
    if not isinstance(dense, list):
        raise PerfError(f"config.json: mlp_only_layers is {dense!r}; write a list of layers")
    first, step = given.integer("first_k_dense_replace", 0, least=0), given.integer("decoder_sparse_step", 1)
    is_moe = [layer >= first and (layer + 1) % step == 0 and layer not in dense for layer in range(layers)]
    shared, gated = config.get("shared_expert_intermediate_size"), config["model_type"] == "qwen2_moe"
    if shared is None and config.get("n_shared_experts"):
        shared = given.integer("n_shared_experts") * given.integer("moe_intermediate_size")
    return {
        "moe_layer_freq": [int(one) for one in is_moe],
        "moe_shared_expert_intermediate_size": shared,
        "moe_shared_expert_gate": gated,
    }


def _window(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """The layers that see a window, by the rule of each family; transformers counts the query's own key,
    Megatron does not.
    """
    model, given = config["model_type"], Arguments(config)
    if model not in _WINDOWS or (model.startswith("qwen") and not given.flag("use_sliding_window")):
        return {}
    size = config.get("sliding_window", 4096 if model.startswith("qwen") else None)
    if not size:  # Qwen2-MoE writes 0 for none
        return {}
    below, kinds = given.integer("max_window_layers", 28, least=0), config.get("layer_types")
    masked = [_WINDOWS[model](layer, below) for layer in range(layers)]
    if kinds is not None and model in _BY_TYPE:
        known = ("full_attention", "sliding_attention")
        if not isinstance(kinds, list) or len(kinds) != layers or any(one not in known for one in kinds):
            raise PerfError(
                f"config.json: layer_types is {kinds!r}; write {' or '.join(known)} for each "
                f"of {layers} layers"
            )
        masked = [kind == "sliding_attention" for kind in kinds]
    size = given.integer("sliding_window", 4096)
    return {"window_size": (size - 1, 0), "window_attn_skip_freq": [int(each) for each in masked]}
