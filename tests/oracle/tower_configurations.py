"""Models of transformers to count, each by its config.json, in the form that `transformers_counter` reads."""

from __future__ import annotations

import random
from typing import Any

Args = dict[str, Any]

STEP: Args = {"batch": 2, "seq_length": 21}
LLAMA: Args = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 96,
    "tie_word_embeddings": False,
}
MOE = LLAMA | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "head_dim": 12}


def step(config: Args, **options: Any) -> Args:
    """One model and what is done with it."""
    return STEP | {"config": config} | options


# What the formulas counted before there were other models than decoders, from their config.json.
DECODERS: dict[str, Args] = {
    "hf_gpt2": step(
        {
            "model_type": "gpt2",
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "vocab_size": 96,
            "n_positions": 32,
            "n_inner": 80,
            "tie_word_embeddings": True,
        }
    ),
    "hf_llama": step(LLAMA),
    "hf_qwen2": step(LLAMA | {"model_type": "qwen2"}),
    "hf_qwen3": step(LLAMA | {"model_type": "qwen3", "head_dim": 12, "tie_word_embeddings": True}),
    "hf_qwen3_moe": step(MOE | {"model_type": "qwen3_moe", "mlp_only_layers": [0]}),
    "hf_mixtral": step(LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 3}),
}

QWEN_VL: Args = {
    "model_type": "qwen2_5_vl",
    "image_token_id": 2,
    "video_token_id": 3,
    "vision_start_token_id": 1,
    "vision_end_token_id": 4,
    "tie_word_embeddings": False,
    "text_config": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "vocab_size": 96,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]},
    },
    "vision_config": {
        "depth": 3,
        "hidden_size": 24,
        "num_heads": 3,
        "intermediate_size": 40,
        "patch_size": 2,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "in_channels": 3,
        "window_size": 8,
        "fullatt_block_indexes": [1],
        "out_hidden_size": 32,
        "hidden_act": "silu",
    },
}
LLAVA: Args = {
    "model_type": "llava",
    "image_token_index": 2,
    "tie_word_embeddings": False,
    "text_config": LLAMA,
    "vision_config": {
        "model_type": "clip_vision_model",
        "num_hidden_layers": 3,
        "hidden_size": 24,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "patch_size": 2,
        "image_size": 8,
    },
}
QWEN3_VL: Args = QWEN_VL | {
    "model_type": "qwen3_vl",
    "text_config": QWEN_VL["text_config"]
    | {
        "num_hidden_layers": 3,
        "head_dim": 12,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 2, 2]},
    },
    "vision_config": {
        "depth": 4,
        "hidden_size": 24,
        "num_heads": 3,
        "intermediate_size": 40,
        "patch_size": 2,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "in_channels": 3,
        "out_hidden_size": 32,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0, 2],
    },
}
QWEN3_VL_MOE: Args = QWEN3_VL | {
    "model_type": "qwen3_vl_moe",
    "text_config": QWEN3_VL["text_config"]
    | {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [1],
    },
}
SIGLIP: Args = LLAVA | {
    "vision_feature_select_strategy": "full",
    "vision_config": LLAVA["vision_config"] | {"model_type": "siglip_vision_model", "vision_use_head": False},
}
T5: Args = {
    "model_type": "t5",
    "d_model": 32,
    "d_kv": 6,
    "d_ff": 40,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "vocab_size": 96,
    "feed_forward_proj": "gated-gelu",
    "decoder_start_token_id": 0,
}
BERT: Args = {
    "model_type": "bert",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 96,
    "max_position_embeddings": 32,
}
GRIDS = [[1, 4, 6], [2, 4, 4]]
FIXED_GRIDS = [[1, 4, 4]] * 2
UNIFORM = {"recompute_granularity": "full", "recompute_method": "uniform"}
FROZEN_PARTS = (
    ["vision"],
    ["projector"],
    ["language_model"],
    ["vision", "projector"],
    ["vision", "language_model"],
    ["projector", "language_model"],
    ["embedding", "layers.0"],
    ["vision", "projector", "embedding"],
)


def _towers(name: str, config: Args, grids: list[list[int]]) -> dict[str, Args]:
    made = {
        name: step(config, image_grids=grids),
        f"{name}_recompute": step(config, image_grids=grids, **UNIFORM),
    }
    for frozen in FROZEN_PARTS:
        options = {"image_grids": grids, "frozen": frozen}
        made[f"{name}_frozen_{'_'.join(frozen)}"] = step(config, **options)
        made[f"{name}_frozen_{'_'.join(frozen)}_recompute"] = step(config, **options, **UNIFORM)
    return made


TOWERS: dict[str, Args] = {
    **_towers("qwen2_5_vl", QWEN_VL, GRIDS),
    **_towers("qwen3_vl", QWEN3_VL, GRIDS),
    **_towers("llava", LLAVA, FIXED_GRIDS),
    "llava_siglip": step(SIGLIP, image_grids=FIXED_GRIDS),
    "llava_siglip_frozen_vision_recompute": step(
        SIGLIP, image_grids=FIXED_GRIDS, frozen=["vision"], **UNIFORM
    ),
    "qwen3_vl_moe": step(QWEN3_VL_MOE, image_grids=GRIDS),
    "llava_siglip_last_layer": step(SIGLIP | {"vision_feature_layer": -1}, image_grids=FIXED_GRIDS),
    "qwen2_5_vl_ragged_windows": step(QWEN_VL, image_grids=[[1, 6, 10]], seq_length=15),
    "llava_last_layer": step(LLAVA | {"vision_feature_layer": -1}, image_grids=FIXED_GRIDS),
    "llava_two_layers": step(LLAVA | {"vision_feature_layer": [-2, 1]}, image_grids=FIXED_GRIDS),
    "llava_class_token": step(LLAVA | {"vision_feature_select_strategy": "full"}, image_grids=FIXED_GRIDS),
    "t5": step(T5, decoder_seq_length=9),
    "t5_relu": step(T5 | {"feed_forward_proj": "relu"}, decoder_seq_length=30),
    "t5_recompute": step(T5, decoder_seq_length=9, **UNIFORM),
    "t5_frozen_encoder": step(T5, decoder_seq_length=9, frozen=["encoder", "embedding"]),
    "t5_frozen_encoder_recompute": step(T5, decoder_seq_length=9, frozen=["encoder", "embedding"], **UNIFORM),
    "t5_frozen_layer": step(T5, decoder_seq_length=9, frozen=["embedding", "layers.0"]),
    "bert": step(BERT),
    "bert_recompute": step(BERT, **UNIFORM),
    "bert_frozen": step(BERT, frozen=["embedding", "layers.0"]),
    "bert_frozen_recompute": step(BERT, frozen=["embedding", "layers.0"], **UNIFORM),
}


def random_towers(number: int, seed: int) -> dict[str, Args]:
    """That many models with a tower or an encoder, of random sizes, parts of them frozen or recomputed."""
    source = random.Random(seed)
    kinds = (_random_qwen, _random_qwen3, _random_llava, _random_siglip, _random_t5, _random_bert)
    return {f"tower_seed_{seed}_number_{index}": source.choice(kinds)(source) for index in range(number)}


def _random_text(source: random.Random) -> Args:
    heads, width = source.choice([2, 4, 6]), 2 * source.choice([4, 6])
    return {
        "hidden_size": heads * width,
        "num_hidden_layers": source.randint(1, 3),
        "num_attention_heads": heads,
        "num_key_value_heads": source.choice([1, 2, heads]),
        "intermediate_size": 4 * source.randint(2, 20),
        "vocab_size": 8 * source.randint(3, 30),
    }


def _random_step(source: random.Random, config: Args, parts: list[str], **options: Any) -> Args:
    if source.random() < 0.4:
        options |= UNIFORM
    if source.random() < 0.6:
        options["frozen"] = source.sample(parts, source.randint(1, len(parts) - 1))
    return (
        {"batch": source.randint(1, 3), "seq_length": source.randint(24, 40)} | {"config": config} | options
    )


def _random_qwen(source: random.Random) -> Args:
    text, merge, heads = _random_text(source), source.choice([2, 3]), source.choice([1, 2, 3])
    width, patch, depth = (
        text["hidden_size"] // text["num_attention_heads"],
        source.randint(1, 3),
        source.randint(1, 4),
    )
    vision = {
        "depth": depth,
        "hidden_size": 8 * heads,
        "num_heads": heads,
        "intermediate_size": 4 * source.randint(2, 12),
        "patch_size": patch,
        "temporal_patch_size": source.randint(1, 2),
        "spatial_merge_size": merge,
        "in_channels": source.randint(1, 3),
        "window_size": merge * patch * source.randint(1, 3),
        "fullatt_block_indexes": source.sample(range(depth), source.randint(0, depth)),
        "out_hidden_size": text["hidden_size"],
        "hidden_act": "silu",
    }
    text["rope_parameters"] = {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "mrope_section": [1, 1, width // 2 - 2],
    }
    config = QWEN_VL | {"text_config": text, "vision_config": vision}
    grids = [
        [source.randint(1, 2), merge * source.randint(1, 3), merge * source.randint(1, 3)]
        for _ in range(source.randint(1, 2))
    ]
    batch_and_more = _random_step(
        source, config, ["vision", "projector", "language_model"], image_grids=grids
    )
    return batch_and_more | {"seq_length": 40}


def _random_qwen3(source: random.Random) -> Args:
    older, width = _random_qwen(source), 2 * source.randint(3, 8)
    config, vision = older["config"], older["config"]["vision_config"]
    text = config["text_config"] | {
        "head_dim": width,
        "rope_parameters": QWEN_VL["text_config"]["rope_parameters"]
        | {"mrope_section": [1, 1, width // 2 - 2]},
    }
    if source.random() < 0.5:
        experts = source.randint(2, 5)
        text |= {
            "num_experts": experts,
            "num_experts_per_tok": source.randint(1, experts),
            "moe_intermediate_size": 4 * source.randint(1, 8),
            "decoder_sparse_step": source.randint(1, 2),
            "mlp_only_layers": [],
        }
    dropped = ("window_size", "fullatt_block_indexes", "hidden_act")
    tower = {name: value for name, value in vision.items() if name not in dropped} | {
        "num_position_embeddings": source.randint(2, 5) ** 2,
        "deepstack_visual_indexes": sorted(
            source.sample(
                range(vision["depth"]),
                source.randint(0, min(vision["depth"], text["num_hidden_layers"])),
            )
        ),
    }
    kind = "qwen3_vl_moe" if "num_experts" in text else "qwen3_vl"
    return older | {"config": config | {"model_type": kind, "text_config": text, "vision_config": tower}}


def _random_siglip(source: random.Random) -> Args:
    clip = _random_llava(source)
    tower = clip["config"]["vision_config"] | {"model_type": "siglip_vision_model", "vision_use_head": False}
    return clip | {
        "config": clip["config"] | {"vision_config": tower, "vision_feature_select_strategy": "full"}
    }


def _random_llava(source: random.Random) -> Args:
    text, heads, side = _random_text(source), source.choice([1, 2, 3]), source.randint(1, 4)
    patch, layers = source.randint(1, 3), source.randint(1, 4)
    vision = {
        "model_type": "clip_vision_model",
        "num_hidden_layers": layers,
        "hidden_size": 4 * heads,
        "num_attention_heads": heads,
        "intermediate_size": 4 * source.randint(2, 12),
        "patch_size": patch,
        "image_size": side * patch,
        "num_channels": source.randint(1, 3),
    }
    layer = source.choice([-2, -1, source.randint(1, layers), [-2, -1]])
    config = LLAVA | {
        "text_config": {"model_type": source.choice(["llama", "qwen2"])} | text,
        "vision_config": vision,
        "vision_feature_layer": layer,
        "vision_feature_select_strategy": source.choice(["default", "full"]),
        "multimodal_projector_bias": source.random() < 0.5,
    }
    parts = ["vision", "projector", "language_model"]
    return _random_step(source, config, parts, image_grids=[[1, side, side]])


def _random_t5(source: random.Random) -> Args:
    text = _random_text(source)
    config = T5 | {
        "d_model": text["hidden_size"],
        "num_heads": text["num_attention_heads"],
        "d_kv": source.randint(2, 9),
        "d_ff": text["intermediate_size"],
        "vocab_size": text["vocab_size"],
        "num_layers": source.randint(1, 3),
        "num_decoder_layers": source.randint(1, 3),
        "feed_forward_proj": source.choice(["relu", "gated-gelu"]),
    }
    parts = ["encoder", "embedding", "layers.0"]
    return _random_step(source, config, parts, decoder_seq_length=source.randint(1, 40))


def _random_bert(source: random.Random) -> Args:
    text = _random_text(source)
    config = BERT | {key: text[key] for key in text if key != "num_key_value_heads"}
    return _random_step(
        source, config | {"max_position_embeddings": 40}, ["embedding", "layers.0", "layers.0"]
    )
