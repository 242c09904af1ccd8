"""Vision towers and encoders in Megatron's and FlagScale's arguments."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.hf_towers import qwen3_vision, qwen_vision
from flagscale_perf.flops.towers import BertHeads, Encoder, Vision
from flagscale_perf.spine.errors import PerfError

Images = tuple[tuple[int, int, int], ...]

MAX_IMAGES = 100_000
_MAX_SIDE = 1_000_000
# Switches that only vision-language scripts have, whatever their value.
_OF_VISION_SCRIPTS = ("disable_vision_class_token", "freeze_ViT", "freeze_LM", "language_model_type")
# A model's rotary sections tell which it is where its script's own options do not.
_SECTIONS = {"16 24 24": "Qwen2.5-VL", "24 20 20": "Qwen3-VL", "11 11 10": "Qwen3.5"}


def tower_fields(args: Arguments, layers: int) -> dict[str, Any]:
    """The fields of `Shape` for what accompanies the decoder, or BERT, of `layers`. Raises PerfError."""
    vision = _vision(args, layers)
    if vision is not None:
        images, repeated = images_of(args.get("image_grids")), _repeated(args, vision.layers)
        vision = replace(vision, images=images, repeated=repeated)
    encoder = _encoder(args)
    return {
        "vision": vision,
        "encoder": encoder,
        "bert": _bert(args) if encoder is None else None,  # Megatron's T5 has BERT's tokenizer, too
        "frozen": (
            *args.names("frozen"),
            *(_frozen_tower(args) if args.flag("freeze_ViT") else ()),
            *(("language_model",) if args.flag("freeze_LM") else ()),
        ),
    }


def _frozen_tower(args: Arguments) -> tuple[str, ...]:
    """FlagScale's newer towers have their mergers within."""
    return ("vision", "projector") if _qwen(args) in ("Qwen3-VL", "Qwen3.5") else ("vision",)


def decoder_layers(args: Arguments) -> int:
    """Layers of the decoder, or of the only stack: Megatron may give those of T5's stacks separately.

    A training that Megatron has parsed has `num_layers` and `encoder_num_layers`, and its `pretrain_t5.py`
    makes as many layers in the decoder, whatever `decoder_num_layers` says.
    """
    names = ("decoder_num_layers", "num_layers", "encoder_num_layers")
    if args.get("encoder_num_layers") is not None:
        names = ("num_layers", "decoder_num_layers", "encoder_num_layers")
    return args.layers(next((name for name in names if args.get(name) is not None), "num_layers"))


def images_of(grids: Any) -> Images | None:
    """Images of a step from "t,h,w;t,h,w" or a list of such triples; None if not given. An empty list is a
    step without images. Raises PerfError.
    """
    if grids is None:
        return None
    if isinstance(grids, str):
        parts = grids.split(";")
        triples: Any = [re.findall(r"\d{1,7}", part) for part in parts]
        if any(not re.fullmatch(r"\s*\d+\s*,\s*\d+\s*,\s*\d+\s*", part) for part in parts):
            raise _bad_grids(grids)
    else:
        triples = grids
    try:
        images = tuple((int(frames), int(height), int(width)) for frames, height, width in triples)
    except (TypeError, ValueError):
        raise _bad_grids(grids) from None
    if len(images) > MAX_IMAGES or any(not 0 < side <= _MAX_SIDE for image in images for side in image):
        raise _bad_grids(grids)
    return images


def _bad_grids(grids: Any) -> PerfError:
    return PerfError(
        f"model: image_grids is {str(grids)[:80]!r}; write frames, and patches along height and width, of "
        f"each image of the step, at most {MAX_IMAGES}: 't,h,w;t,h,w', or [] for none"
    )


def _repeated(args: Arguments, layers: int) -> tuple[bool, ...]:
    """Recomputed layers of a tower or an encoder, which is not divided over pipeline stages."""
    steps = args.get("vision_recompute_layer_steps")
    if steps not in (None, 0, "0") or args.flag("vision_recompute_activations"):
        return (True,) * layers
    if args.get("recompute_granularity") != "full":
        return ()
    first = layers if args.get("recompute_method") == "uniform" else args.integer("recompute_num_layers")
    return tuple(layer < first for layer in range(layers))


def _vision(args: Arguments, layers: int) -> Vision | None:
    tower = args.get("vision_tower")
    if isinstance(tower, Vision):
        return tower
    given = [name for name in _OF_VISION_SCRIPTS if args.has(name)]
    given += [name for name in ("vision_num_layers", "vision_hidden_size") if args.get(name) is not None]
    if not given:
        return None
    model = _qwen(args)
    if not model or args.get("language_model_type") is not None:
        raise PerfError(
            f"model: {given[0]} is given, so there is a vision encoder, and mrope_section is "
            f"{args.get('mrope_section')!r}; of such scripts, those of FlagScale's {', '.join(_TOWERS)} are "
            "counted; give the model's config.json"
        )
    return _TOWERS[model](args, layers)


def _qwen(args: Arguments) -> str:
    """The name of FlagScale's Qwen model; "" for any other."""
    if args.has("vision_num_layers"):
        return "Qwen3.5"
    if args.has("vision_recompute_activations"):
        return "Qwen3-VL"
    return _SECTIONS.get(" ".join(re.findall(r"\d+", str(args.get("mrope_section")))), "")


# FlagScale's transformer_config.py of each model: all but the inner width is fixed in Qwen2.5-VL, of two
# sizes in Qwen3-VL, and given in Qwen3.5. What is not said here is as in transformers.
def _qwen2_5_vl(args: Arguments, layers: int) -> Vision:
    return qwen_vision({"hidden_size": 1280, "intermediate_size": 3420 if layers in (28, 36) else 3456})


def _qwen3_vl(args: Arguments, layers: int) -> Vision:
    if (layers, args.integer("hidden_size")) != (36, 2560):
        return qwen3_vision({})
    sizes = {"depth": 24, "hidden_size": 1024, "intermediate_size": 4096}
    return qwen3_vision({**sizes, "deepstack_visual_indexes": [5, 11, 17]})


def _qwen3_5(args: Arguments, layers: int) -> Vision:
    sizes = {
        "depth": args.integer("vision_num_layers"),
        "hidden_size": args.integer("vision_hidden_size"),
        "num_heads": args.integer("vision_num_attention_heads"),
        "intermediate_size": args.integer("vision_ffn_hidden_size"),
    }
    return qwen3_vision({**sizes, "deepstack_visual_indexes": []})


_TOWERS = {"Qwen2.5-VL": _qwen2_5_vl, "Qwen3-VL": _qwen3_vl, "Qwen3.5": _qwen3_5}


def _encoder(args: Arguments) -> Encoder | None:
    length = args.optional("decoder_seq_length")
    is_t5 = args.get("model_family") == "t5"
    if args.get("vision_tower") is not None or not (
        is_t5 or length is not None or args.get("decoder_num_layers") is not None
    ):
        return None
    layers = args.layers("num_layers" if args.get("encoder_num_layers") is None else "encoder_num_layers")
    # Megatron's output layer has a bias where it shares the embedding's weights, transformers' never
    of_megatron = args.get("position_buckets") is None and not args.flag(
        "untie_embeddings_and_output_weights"
    )
    buckets = args.integer("position_buckets", 0, least=0)
    return Encoder(layers, length, _repeated(args, layers), buckets, of_megatron)


def _bert(args: Arguments) -> BertHeads | None:
    if args.get("model_family") != "bert" and "bertwordpiece" not in str(args.get("tokenizer_type")).lower():
        return None
    next_sentence = args.get("bert_binary_head") is None or args.flag("bert_binary_head")
    return BertHeads(next_sentence, args.flag("post_norm"), args.integer("token_types", 2 * next_sentence, 0))
