"""Hugging Face configs of vision-language models, T5 and BERT in Megatron's argument names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.hf import KEYS, args_from_hf
from flagscale_perf.flops.towers import Vision
from flagscale_perf.spine.errors import PerfError

# transformers' own defaults, which a config.json may leave out
_LLAMA = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
}
_QWEN_VISION = {
    "depth": 32,
    "hidden_size": 3584,
    "intermediate_size": 3420,
    "num_heads": 16,
    "in_channels": 3,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "window_size": 112,
}
_QWEN3_VISION = _QWEN_VISION | {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "patch_size": 16,
    "num_position_embeddings": 2304,
}
_CLIP = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "patch_size": 32,
    "image_size": 224,
    "num_channels": 3,
}
_SIGLIP = _CLIP | {"patch_size": 16}
_T5 = {
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 2048,
    "num_layers": 6,
    "num_heads": 8,
    "vocab_size": 32128,
    "relative_attention_num_buckets": 32,
}
_BERT = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}
_QWEN3_VL_MOE = {
    "num_key_value_heads": 16,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 1408,
}
_TEXT_MODELS = ("llama", "mistral", "qwen2", "qwen3")


def args_from_qwen_vl(config: Mapping[str, Any], family: str, gated: bool) -> dict[str, Any]:
    """Qwen2.5-VL; its text model may be in text_config or at the top level. Raises PerfError."""
    vision = qwen_vision(_section(config, "vision_config", {}))
    text = {"max_window_layers": 80} | _text(config, {}) | {"model_type": "qwen2", "head_dim": None}
    _check_joined(config, text, 3584)
    return args_from_hf(text, family, gated) | {"vision_tower": vision}


def qwen_vision(given: Mapping[str, Any]) -> Vision:
    """The tower of a Qwen2.5-VL with these sizes, the others by transformers' defaults. Raises PerfError."""
    tower = {**_QWEN_VISION, **given}
    made, number = _qwen_tower(tower), Arguments(tower).integer
    whole = tower.get("fullatt_block_indexes", [7, 15, 23, 31])
    window = number("window_size") // made.merge // number("patch_size")
    if not isinstance(whole, list) or not window:
        raise PerfError(
            f"config.json: vision_config has fullatt_block_indexes {whole!r} and window_size "
            f"{tower['window_size']!r}; write a list of layers, and pixels of at least one merged patch"
        )
    whole_frames = tuple(layer in whole for layer in range(made.layers))
    return replace(made, gated=True, window=window, whole_frames=whole_frames)


def _qwen_tower(tower: Mapping[str, Any]) -> Vision:
    """What the towers of Qwen's models have in common."""
    number = Arguments(tower).integer
    hidden, merge = number("hidden_size"), number("spatial_merge_size")
    return Vision(
        layers=Arguments(tower).layers("depth"),
        hidden=hidden,
        heads=number("num_heads"),
        ffn=number("intermediate_size"),
        gated=False,
        patch_inputs=number("in_channels") * number("temporal_patch_size") * number("patch_size") ** 2,
        projector_inner=hidden * merge**2,
        merge=merge,
        projector_norm=True,
    )


def args_from_qwen3_vl(config: Mapping[str, Any], family: str, gated: bool) -> dict[str, Any]:
    """Qwen3-VL, dense or with experts: whole frames, and mergers behind layers within. Raises PerfError."""
    vision = qwen3_vision(_section(config, "vision_config", {}))
    is_moe = config["model_type"] == "qwen3_vl_moe"
    text = _text(config, _QWEN3_VL_MOE if is_moe else {"head_dim": 128})
    text["model_type"] = "qwen3_moe" if is_moe else "qwen3"
    if is_moe and all(text.get(name) is None for name in KEYS["num_experts"]):
        text["num_experts"] = 60
    _check_joined(config, text, 3584)
    text |= {
        "use_sliding_window": False,
        "tie_word_embeddings": Arguments(config).flag("tie_word_embeddings"),
    }
    args = args_from_hf(text, family, gated)
    deep = vision.deepstack
    if len(set(deep)) != len(deep) or len(deep) > Arguments(args).layers():
        raise PerfError(
            f"config.json: vision_config has deepstack_visual_indexes {list(deep)}; write each layer once, "
            "and no more of them than the text model has layers"
        )
    return args | {"vision_tower": vision}


def _check_joined(config: Mapping[str, Any], text: Mapping[str, Any], usual: int) -> None:
    """Raises PerfError where the tower's output is not as wide as the text model; `usual`: its default."""
    width = _section(config, "vision_config", {"out_hidden_size": usual})["out_hidden_size"]
    if width != text.get("hidden_size"):
        raise PerfError(
            f"config.json: vision_config has out_hidden_size {width!r}, and the text model hidden_size "
            f"{text.get('hidden_size')!r}; make them agree"
        )


def qwen3_vision(given: Mapping[str, Any]) -> Vision:
    """The tower of a Qwen3-VL with these sizes, the others by transformers' defaults. Raises PerfError."""
    tower = {**_QWEN3_VISION, **given}
    made = _qwen_tower(tower)
    deep = tower.get("deepstack_visual_indexes", [8, 16, 24])
    if not isinstance(deep, list) or not all(type(each) is int and 0 <= each < made.layers for each in deep):
        raise PerfError(
            f"config.json: vision_config has deepstack_visual_indexes {deep!r}; write a list of its layers, "
            f"from 0 to {made.layers - 1}"
        )
    positions = Arguments(tower).integer("num_position_embeddings")
    return replace(made, deepstack=tuple(deep), patch_bias=True, norm_bias=True, positions=positions)


def args_from_llava(config: Mapping[str, Any], family: str, gated: bool) -> dict[str, Any]:
    """LLaVA: a CLIP or a SigLIP tower, two projecting layers, a decoder. Raises PerfError."""
    text = _text(config, _LLAMA if _text(config, {}).get("model_type", "llama") == "llama" else {})
    text = {"model_type": "llama"} | text
    if text["model_type"] not in _TEXT_MODELS:
        raise PerfError(
            f"config.json: text_config has model_type {text['model_type']!r}; "
            f"counted are {', '.join(_TEXT_MODELS)}"
        )
    args = args_from_hf(text, family, gated)
    return args | {"vision_tower": _clip_or_siglip(config, Arguments(text).integer("hidden_size"))}


def _clip_or_siglip(config: Mapping[str, Any], projected: int) -> Vision:
    """`projected`: width of the text model. SigLIP has no class token, so no position for one either."""
    kind = _section(config, "vision_config", {}).get("model_type", "clip_vision_model")
    if kind not in ("clip_vision_model", "siglip_vision_model"):
        raise PerfError(
            f"config.json: vision_config has model_type {kind!r}; "
            "only clip_vision_model and siglip_vision_model are counted"
        )
    is_clip = kind == "clip_vision_model"
    tower = _section(config, "vision_config", _CLIP if is_clip else _SIGLIP)
    keeps_all = config.get("vision_feature_select_strategy", "default") == "full"
    if not is_clip and (not keeps_all or tower.get("vision_use_head", True)):
        raise PerfError(
            "config.json: siglip_vision_model has no class token, and nothing reads its head; write "
            "vision_feature_select_strategy 'full' and, in vision_config, vision_use_head false"
        )
    number, layers = Arguments(tower).integer, Arguments(tower).layers("num_hidden_layers")
    side = number("image_size") // number("patch_size")
    return Vision(
        layers=layers,
        hidden=number("hidden_size"),
        heads=number("num_attention_heads"),
        ffn=number("intermediate_size"),
        gated=False,
        patch_inputs=number("num_channels") * number("patch_size") ** 2,
        projector_inner=projected,
        used=_used_layers(config.get("vision_feature_layer", -2), layers),
        class_token=is_clip,
        projects_class=is_clip and keeps_all,
        patch_bias=not is_clip,
        projector_bias=bool(config.get("multimodal_projector_bias", True)),
        norm_bias=True,
        outer_norms=1 + is_clip,
        positions=side * side + is_clip,
    )


def _used_layers(given: Any, layers: int) -> tuple[int, ...]:
    """The number of layers after which outputs are taken; transformers counts the embeddings as the first."""
    chosen = given if isinstance(given, list) else [given]
    if not chosen or any(type(each) is not int or not -layers - 1 <= each <= layers for each in chosen):
        raise PerfError(
            f"config.json: vision_feature_layer is {given!r}; write a layer, or a list of layers, "
            f"from {-layers - 1} to {layers}"
        )
    return tuple(each % (layers + 1) for each in chosen)


def _section(config: Mapping[str, Any], name: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    section = config.get(name)
    if not isinstance(section, Mapping):
        raise PerfError(f"config.json: {name} is {section!r}; write the sizes of that part of the model")
    return {**defaults, **section}


def _text(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    inner = config.get("text_config")
    beside = {} if isinstance(inner, Mapping) else {key: config[key] for key in config if key != "model_type"}
    text = {**defaults, **beside, **(inner if isinstance(inner, Mapping) else {})}
    tied = any(Arguments(one).flag("tie_word_embeddings") for one in (config, text))
    return text | {"tie_word_embeddings": tied}


def args_from_t5(config: Mapping[str, Any], family: str, gated: bool) -> dict[str, Any]:
    """T5; num_layers are the encoder's. Raises PerfError."""
    _same(config, hidden_size="d_model", num_attention_heads="num_heads", head_dim="d_kv")
    given = _T5 | dict(config)
    decoder = given.get("num_decoder_layers")
    return {
        "model_family": family,
        "num_layers": given["num_layers"] if decoder is None else decoder,
        "encoder_num_layers": given["num_layers"],
        "hidden_size": given["d_model"],
        "num_attention_heads": given["num_heads"],
        "kv_channels": given["d_kv"],
        "ffn_hidden_size": given["d_ff"],
        "swiglu": given.get("is_gated_act", str(given.get("feed_forward_proj", "relu")).startswith("gated")),
        "padded_vocab_size": given["vocab_size"],
        "normalization": "RMSNorm",
        "add_bias_linear": False,
        "position_embedding_type": "relative",
        "position_buckets": given["relative_attention_num_buckets"],
    }


def _same(config: Mapping[str, Any], **names: str) -> None:
    """Raises PerfError for a size that stands under another name, too, and differs."""
    for theirs, ours in names.items():
        if config.get(theirs) is not None and config[theirs] != config.get(ours, _T5.get(ours)):
            raise PerfError(
                f"config.json: {theirs} is {config[theirs]!r} and {ours} {config.get(ours)!r}, which are one "
                f"size; write {ours} only"
            )


def args_from_bert(config: Mapping[str, Any], family: str, gated: bool) -> dict[str, Any]:
    """BERT as it is pretrained, with both heads. Raises PerfError."""
    given = _BERT | dict(config)
    if "tie_word_embeddings" in given and not Arguments(given).flag("tie_word_embeddings"):
        raise PerfError("config.json: tie_word_embeddings is false; only a tied bert is counted; take it out")
    return {
        "model_family": family,
        "num_layers": given["num_hidden_layers"],
        "hidden_size": given["hidden_size"],
        "num_attention_heads": given["num_attention_heads"],
        "ffn_hidden_size": given["intermediate_size"],
        "padded_vocab_size": given["vocab_size"],
        "max_position_embeddings": given["max_position_embeddings"],
        "token_types": given["type_vocab_size"],
        "post_norm": True,
    }
