"""Vision towers and encoders in Megatron's and FlagScale's arguments."""

from __future__ import annotations

import re
from typing import Any

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.towers import BertHeads, Encoder, Vision
from flagscale_perf.spine.errors import PerfError

Images = tuple[tuple[int, int, int], ...]

MAX_IMAGES = 100_000
_MAX_SIDE = 1_000_000
# Switches that only vision-language scripts have, whatever their value.
_OF_VISION_SCRIPTS = ("disable_vision_class_token", "freeze_ViT", "freeze_LM", "language_model_type")
# FlagScale's flagscale/train/models/qwen2_5_vl/transformer_config.py: all but the inner width is fixed.
_QWEN_LAYERS, _QWEN_WHOLE_FRAMES = 32, (7, 15, 23, 31)


def tower_fields(args: Arguments, layers: int) -> dict[str, Any]:
    """The fields of `Shape` for what accompanies the decoder. Raises PerfError. `layers`: of the decoder, or
    of BERT.

    `layers`: of the decoder, or of BERT.
    """
    vision = _vision(args, layers)
    if vision is not None:
        vision = vision.with_step(images_of(args.get("image_grids")), _repeated(args, vision.layers))
    encoder = _encoder(args)
    return {
        "vision": vision,
        "encoder": encoder,
        "bert": _bert(args) if encoder is None else None,  # Megatron's T5 has BERT's tokenizer, too
        "frozen": (
            *args.names("frozen"),
            *(("vision",) if args.flag("freeze_ViT") else ()),
            *(("language_model",) if args.flag("freeze_LM") else ()),
        ),
    }


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

    An empty list is a step without images. Raises PerfError.
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
    if steps not in (None, 0, "0"):
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
    if not given:
        return None
    if args.get("mrope_section") is None or args.get("language_model_type") is not None:
        raise PerfError(
            f"model: {given[0]} is given, so there is a vision encoder, and only that of FlagScale's "
            "Qwen2.5-VL (with mrope_section) can be read from arguments; give the model's config.json"
        )
    return Vision(
        layers=_QWEN_LAYERS,
        hidden=1280,
        heads=16,
        ffn=3420 if layers in (28, 36) else 3456,
        gated=True,
        patch_inputs=3 * 2 * 14 * 14,
        projector_inner=1280 * 4,
        merge=2,
        window=112 // 2 // 14,
        whole_frames=tuple(layer in _QWEN_WHOLE_FRAMES for layer in range(_QWEN_LAYERS)),
        projector_norm=True,
    )


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
