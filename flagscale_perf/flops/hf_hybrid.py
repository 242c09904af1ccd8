"""Hugging Face configs of models with recurrent or index layers, in Megatron's argument names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.spine.errors import PerfError

Config = Mapping[str, Any]

# Names of the layers in configs, old and new.
_LETTERS = {
    "mamba": "M",
    "linear_attention": "M",
    "attention": "*",
    "full_attention": "*",
    "mlp": "-",
    "moe": "E",
}


def _first(config: Config, *names: str, default: Any = None) -> Any:
    return next((config[name] for name in names if config.get(name) is not None), default)


def _nemotron_h(config: Config) -> dict[str, Any]:
    pattern = config.get("hybrid_override_pattern") or _letters(config, "layers_block_type")
    names = ("mamba_num_heads", "mamba_head_dim", "ssm_state_size")
    args = _mamba(config, names, "use_bias", "use_conv_bias") | {
        "hybrid_layer_pattern": pattern,
        "num_layers": len(str(pattern)),
        "squared_relu": True,
    }
    if Arguments(config).integer("mtp_num_layers", 0, least=0):
        further = config.get("mtp_hybrid_override_pattern") or _letters(config, "mtp_layers_block_type")
        args["mtp_hybrid_override_pattern"] = further
    if "E" not in str(pattern):
        return args | {"num_experts": None}
    return args | {
        "moe_shared_expert_intermediate_size": config.get("moe_shared_expert_intermediate_size"),
        "moe_latent_size": config.get("moe_latent_size"),
        "moe_layer_freq": None,
    }


def _letters(config: Config, name: str) -> str:
    kinds = config.get(name)
    if not isinstance(kinds, list) or not kinds:
        raise PerfError(f"config.json: {name} is {kinds!r}; write a list of the layers' kinds")
    for kind in kinds:
        if kind not in _LETTERS:
            raise PerfError(f"config.json: {name} has {kind!r}; known are {', '.join(_LETTERS)}")
    return "".join(_LETTERS[kind] for kind in kinds)


def _mamba(config: Config, names: tuple[str, str, str], bias: str, conv_bias: str) -> dict[str, Any]:
    """Sizes of the Mamba layers, by the config's names: `names` of their heads, a head's width and its state,
    then those of the biases.
    """
    heads, width, state = (config.get(name) for name in names)
    if width in (None, "auto") and heads:
        given = Arguments(config)
        expand = _first(config, "mamba_expand", "expand", default=2)
        width = given.integer("hidden_size") * int(expand) // given.integer(names[0])
    for name, value in zip(names, (heads, width, state), strict=True):
        if value is None:
            raise PerfError(f"config.json: {name} is missing; add it")
    return {
        "mamba_num_heads": heads,
        "mamba_head_dim": width,
        "mamba_state_dim": state,
        "mamba_num_groups": _first(config, "mamba_n_groups", "n_groups", default=1),
        "mamba_conv_kernel": _first(config, "mamba_d_conv", "conv_kernel", default=4),
        "mamba_chunk_size": _first(config, "mamba_chunk_size", "chunk_size", default=256),
        "mamba_in_bias": config.get(bias),
        "mamba_out_bias": config.get(bias),
        "mamba_conv_bias": config.get(conv_bias),
    }


def _with_mlp(config: Config, softmax: list[bool], feed_forward: str) -> dict[str, Any]:
    blocks = [["attention" if one else "mamba", feed_forward] for one in softmax]
    names = ("mamba_n_heads", "mamba_d_head", "mamba_d_state")
    return _mamba(config, names, "mamba_proj_bias", "mamba_conv_bias") | {"layer_blocks": blocks}


def _bamba(config: Config) -> dict[str, Any]:
    softmax = config.get("attn_layer_indices") or []
    layers = Arguments(config).integer("num_hidden_layers")
    return _with_mlp(config, [layer in softmax for layer in range(layers)], "mlp")


def _granite(config: Config) -> dict[str, Any]:
    softmax = [letter == "*" for letter in _letters(config, "layer_types")]
    shared = config.get("shared_intermediate_size")
    if not config.get("num_local_experts"):
        return _with_mlp(config, softmax, "mlp") | {"ffn_hidden_size": shared, "num_experts": None}
    return _with_mlp(config, softmax, "mixture") | {
        "moe_ffn_hidden_size": config.get("intermediate_size"),
        "moe_shared_expert_intermediate_size": shared,
    }


def _mamba2(config: Config) -> dict[str, Any]:
    return _mamba(config, ("num_heads", "head_dim", "state_size"), "use_bias", "use_conv_bias") | {
        "layer_blocks": [["mamba"]] * Arguments(config).integer("num_hidden_layers"),
        "num_attention_heads": 1,
        "kv_channels": None,
    }


def _qwen_next(config: Config) -> dict[str, Any]:
    names = ("key_head_dim", "value_head_dim", "num_key_heads", "num_value_heads", "conv_kernel_dim")
    return {
        **{f"linear_{name}": config.get(f"linear_{name}") for name in names},
        "experimental_attention_variant": "gated_delta_net",
        "linear_attention_freq": _linear_layers(config),
        "attention_output_gate": True,
        "qk_layernorm": True,
        "moe_shared_expert_gate": bool(config.get("shared_expert_intermediate_size")),
    }


def _linear_layers(config: Config) -> list[int]:
    """1 for every layer that is not softmax attention."""
    kinds = config.get("layer_types")
    if kinds is not None:
        return [int(letter == "M") for letter in _letters(config, "layer_types")]
    given = Arguments(config)
    every = given.integer("full_attention_interval", 4)
    return [int((layer + 1) % every != 0) for layer in range(given.integer("num_hidden_layers"))]


def _kimi(config: Config) -> dict[str, Any]:
    own = config.get("linear_attn_config") or {}
    layers = Arguments(config).integer("num_hidden_layers")
    if "kda_layers" in own:
        linear = [int(layer + 1 in own["kda_layers"]) for layer in range(layers)]
    elif config.get("layer_types"):
        linear = _linear_layers(config)
    else:
        linear = [int(layer == 0 or layer % 4 != 0) for layer in range(layers)]
    shared = _first(config, "num_shared_experts", "n_shared_experts", default=0)
    return {
        "experimental_attention_variant": "kda",
        "linear_attention_freq": linear,
        "linear_num_heads": _first(config, "linear_num_heads", default=own.get("num_heads")),
        "linear_head_dim": _first(config, "linear_head_dim", default=own.get("head_dim")),
        "linear_conv_kernel_dim": _first(
            config, "linear_conv_kernel_dim", default=own.get("short_conv_kernel_size")
        ),
        "moe_router_topk": _first(config, "num_experts_per_token", "num_experts_per_tok"),
        "moe_layer_freq": _sparse_layers(config, 1),
        "moe_shared_expert_intermediate_size": shared * Arguments(config).integer("moe_intermediate_size"),
    }


def _sparse_layers(config: Config, dense: int) -> list[int]:
    """1 for every layer of experts; `dense`: first layers without any, unless the config says otherwise."""
    kinds, given = config.get("mlp_layer_types"), Arguments(config)
    if isinstance(kinds, list):
        return [int(kind == "sparse") for kind in kinds]
    first = given.integer("first_k_dense_replace", dense, least=0)
    return [int(layer >= first) for layer in range(given.integer("num_hidden_layers"))]


def _deepseek_v32(config: Config) -> dict[str, Any]:
    return {
        "experimental_attention_variant": "dsa",
        "dsa_indexer_n_heads": config.get("index_n_heads"),
        "dsa_indexer_head_dim": config.get("index_head_dim"),
        "dsa_indexer_topk": config.get("index_topk"),
        "dsa_absorbed": False,
        "moe_layer_freq": _sparse_layers(config, 3),
    }


def _rwkv(config: Config) -> dict[str, Any]:
    return {
        "layer_blocks": [["rwkv_time_mix", "rwkv_channel_mix"]]
        * Arguments(config).integer("num_hidden_layers"),
        "attention_hidden_size": config.get("attention_hidden_size"),
        "num_attention_heads": 1,
        "normalization": "LayerNorm",
    }


# model_type -> reader of what its config contains beyond a decoder's
HYBRIDS: dict[str, Callable[[Config], dict[str, Any]]] = {
    "nemotron_h": _nemotron_h,
    "bamba": _bamba,
    "granitemoehybrid": _granite,
    "mamba2": _mamba2,
    "qwen3_next": _qwen_next,
    "qwen3_5_text": _qwen_next,
    "qwen3_5_moe_text": _qwen_next,
    "kimi_linear": _kimi,
    "deepseek_v32": _deepseek_v32,
    "rwkv": _rwkv,
}
