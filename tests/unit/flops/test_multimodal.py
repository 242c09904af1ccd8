"""Vision towers and encoders as Megatron and FlagScale say them."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.multimodal import decoder_layers, images_of
from flagscale_perf.flops.towers import BertHeads, Encoder
from flagscale_perf.flops_calculator import ModelShape
from flagscale_perf.spine.errors import PerfError
from tests.unit.flops.families.walks import SIZES

QWEN = SIZES | {"freeze_ViT": False, "freeze_LM": False, "mrope_section": [16, 24, 24]}
UNIFORM = {"recompute_granularity": "full", "recompute_method": "uniform"}
BLOCK = {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 1}


def test_images_are_triples():
    assert images_of("1, 4,6;2,2,2") == images_of([[1, 4, 6], (2, 2, 2)]) == ((1, 4, 6), (2, 2, 2))
    assert (images_of([]), images_of(None)) == ((), None)


@pytest.mark.parametrize(
    "grids", ["1,4", "1,4,6;", "", "a,b,c", [[1, 4]], 7, [[1, 0, 4]], [[1, 10**7, 4]], "1 4 6"]
)
def test_what_is_no_image_is_refused(grids):
    with pytest.raises(PerfError, match="image_grids is .*; write frames, and patches"):
        images_of(grids)


def test_flagscales_qwen_tower():
    vision = ModelShape.from_args(QWEN | {"freeze_ViT": True}).vision
    assert vision is not None
    assert (vision.layers, vision.hidden, vision.heads, vision.ffn) == (32, 1280, 16, 3456)
    assert (vision.merge, vision.window, vision.patch_inputs, vision.projector_inputs) == (2, 4, 1176, 5120)
    assert [layer for layer in range(32) if vision.sees_whole_frames(layer)] == [7, 15, 23, 31]
    assert (vision.images, vision.repeated) == (None, ())
    of_7b = ModelShape.from_args(QWEN | {"num_layers": 28}).vision
    assert of_7b is not None
    assert of_7b.ffn == 3420


def test_flagscales_newer_towers():
    qwen3 = SIZES | {"freeze_ViT": True, "mrope_section": [24, 20, 20]}
    shape = ModelShape.from_args(qwen3)
    vision = shape.vision
    assert vision is not None
    assert (vision.layers, vision.hidden, vision.heads, vision.ffn) == (27, 1152, 16, 4304)
    assert (vision.window, vision.deepstack, vision.patch_inputs) == (0, (8, 16, 24), 1536)
    assert (shape.family, shape.frozen) == ("qwen3_vl", ("vision", "projector"))
    of_4b = qwen3 | {"num_layers": 36, "hidden_size": 2560, "vision_recompute_activations": True}
    smaller = ModelShape.from_args(of_4b).vision
    assert smaller is not None
    assert (smaller.layers, smaller.hidden, smaller.ffn) == (24, 1024, 4096)
    assert (smaller.deepstack, smaller.repeated) == ((5, 11, 17), (True,) * 24)


def test_flagscales_tower_is_the_one_that_transformers_has_by_default():
    text = {
        "num_hidden_layers": 36,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 12288,
        "vocab_size": 151936,
    }
    tower = {"out_hidden_size": 4096}
    default = ModelShape.from_hf({"model_type": "qwen3_vl", "text_config": text, "vision_config": tower})
    assert (
        ModelShape.from_args(SIZES | {"freeze_LM": False, "mrope_section": "24 20 20"}).vision
        == default.vision
    )


def test_a_tower_of_given_sizes_beside_gated_delta_nets():
    linear = {f"linear_{name}": 2 for name in ("num_key_heads", "num_value_heads", "key_head_dim")}
    sizes = {"num_layers": 3, "hidden_size": 8, "num_attention_heads": 2, "ffn_hidden_size": 12}
    given = (
        SIZES
        | linear
        | {f"vision_{name}": value for name, value in sizes.items()}
        | {
            "freeze_ViT": False,
            "linear_value_head_dim": 2,
            "linear_attention_freq": [1],
            "experimental_attention_variant": "gated_delta_net",
        }
    )
    shape = ModelShape.from_args(given)
    assert shape.vision is not None
    assert (shape.family, shape.frozen, shape.vision.deepstack) == ("qwen3_5", (), ())
    assert (shape.vision.layers, shape.vision.hidden, shape.vision.heads, shape.vision.ffn) == (3, 8, 2, 12)
    assert ModelShape.from_args(given | {"padded_vocab_size": None, "vocab_size": 31}).vocab == 31
    with pytest.raises(PerfError, match="vision_hidden_size is missing"):
        ModelShape.from_args(given | {"vision_hidden_size": None})


def test_switches_freeze_parts():
    assert ModelShape.from_args(QWEN | {"freeze_ViT": True}).frozen == ("vision",)
    both = ModelShape.from_args(QWEN | {"freeze_LM": "true", "frozen": "projector"})
    assert both.frozen == ("projector", "language_model")


def test_other_vision_scripts_are_refused():
    others = ({"mrope_section": None}, {"mrope_section": [8, 8, 8]}, {"language_model_type": "vicuna_7b"})
    for more in others:
        with pytest.raises(PerfError, match="those of FlagScale's Qwen2.5-VL, Qwen3-VL, Qwen3.5 are counted"):
            ModelShape.from_args(QWEN | more)


@pytest.mark.parametrize(
    ("more", "number"),
    [
        (UNIFORM, 32),
        (BLOCK, 1),
        ({"vision_recompute_layer_steps": 16}, 32),
        ({"vision_recompute_layer_steps": 0}, 0),
    ],
)
def test_the_tower_is_recomputed_as_the_decoder_or_as_it_says_itself(more, number):
    vision = ModelShape.from_args(QWEN | more).vision
    assert vision is not None
    assert sum(vision.repeated) == number


def test_an_encoder_decoder_by_its_arguments():
    shape = ModelShape.from_args(
        SIZES
        | {"num_layers": None, "encoder_num_layers": 3, "decoder_num_layers": 2, "decoder_seq_length": 7}
    )
    assert (shape.family, shape.layers, shape.encoder) == ("t5", 2, Encoder(3, 7, output_bias=True))
    recomputed = ModelShape.from_args(SIZES | UNIFORM | {"decoder_seq_length": 7})
    assert recomputed.encoder == Encoder(1, 7, (True,), output_bias=True)
    # Megatron sets the encoder's sizes of every model, decoders among them
    assert ModelShape.from_args(SIZES | {"encoder_num_layers": 1, "encoder_seq_length": 4}).encoder is None


def test_layers_of_the_decoder():
    assert decoder_layers(Arguments({"encoder_num_layers": 3})) == 3
    assert decoder_layers(Arguments({"num_layers": 3, "decoder_num_layers": 2})) == 2
    # as Megatron has them once it has parsed its arguments, and as its script builds the decoder
    parsed = {"num_layers": 3, "encoder_num_layers": 3, "decoder_num_layers": 2}
    assert decoder_layers(Arguments(parsed)) == 3
    with pytest.raises(PerfError, match="num_layers is missing"):
        decoder_layers(Arguments({}))


def test_an_encoder_decoder_with_berts_tokenizer_has_no_heads_of_bert():
    shape = ModelShape.from_args(SIZES | {"tokenizer_type": "BertWordPieceCase", "decoder_seq_length": 7})
    assert (shape.family, shape.bert) == ("t5", None)


def test_bert_by_its_tokenizer_or_its_name():
    by_tokenizer = ModelShape.from_args(SIZES | {"tokenizer_type": "BertWordPieceLowerCase"})
    assert by_tokenizer.bert == BertHeads(next_sentence=True, post_norm=False, token_types=2)
    without = ModelShape.from_args(SIZES | {"model_family": "bert", "bert_binary_head": False})
    assert without.bert == BertHeads(next_sentence=False, post_norm=False, token_types=0)
