"""config.json of vision-language models, T5 and BERT."""

from __future__ import annotations

import dataclasses

import pytest

from flagscale_perf.flops_calculator import ModelShape, count
from flagscale_perf.spine.errors import PerfError
from tests.oracle.tower_configurations import BERT, LLAVA, QWEN3_VL, QWEN_VL, SIGLIP, T5


def test_qwen_vl_with_its_text_model_in_a_section_and_beside_it():
    nested = ModelShape.from_hf(QWEN_VL)
    flat = {key: value for key, value in QWEN_VL.items() if key != "text_config"} | QWEN_VL["text_config"]
    assert nested == ModelShape.from_hf(flat)
    assert (nested.family, nested.layers, nested.hidden, nested.kv_groups) == ("qwen2_5_vl", 2, 32, 2)
    vision = nested.vision
    assert vision is not None
    assert (vision.window, vision.whole_frames, vision.patch_inputs) == (2, (False, True, False), 24)


def test_llava_reads_the_layer_before_the_last_unless_it_is_told_another():
    shapes = {given: ModelShape.from_hf(LLAVA | {"vision_feature_layer": given}) for given in (-1, -4, 0, 3)}
    assert {given: shape.vision and shape.vision.used for given, shape in shapes.items()} == {
        -1: (3,),
        -4: (0,),
        0: (0,),
        3: (3,),
    }
    usual = ModelShape.from_hf(LLAVA)
    assert usual.family == "llava"
    assert usual.vision is not None
    assert (usual.vision.used, usual.vision.positions, usual.vision.projects_class) == ((2,), 17, False)


def test_defaults_of_transformers_may_be_left_out():
    text = {"model_type": "llama", "vocab_size": 32064}
    shape = ModelShape.from_hf({"model_type": "llava", "text_config": text, "vision_config": {}})
    assert (shape.hidden, shape.layers, shape.vocab) == (4096, 32, 32064)
    assert count(ModelShape.from_hf({"model_type": "bert"}), 1, 8).family == "bert"


def test_t5_with_as_many_decoder_as_encoder_layers_unless_it_says():
    shape = ModelShape.from_hf(T5)
    assert (shape.layers, shape.encoder and shape.encoder.layers, shape.head_dim) == (3, 2, 6)
    alike = ModelShape.from_hf({key: value for key, value in T5.items() if key != "num_decoder_layers"})
    assert (alike.layers, alike.gated) == (2, True)
    assert not ModelShape.from_hf(T5 | {"feed_forward_proj": "relu"}).gated


def test_what_of_the_model_is_trained_may_stand_beside_it():
    shape = ModelShape.from_hf(BERT | {"frozen": ["layers.0"], "micro_batch_size": 2})
    assert (shape.frozen, shape.micro_batch) == (("layers.0",), 2)


def test_qwen3_vl_merges_layers_within_its_tower_too():
    shape = ModelShape.from_hf(QWEN3_VL)
    assert (shape.family, shape.qk_norm, shape.head_dim) == ("qwen3_vl", True, 12)
    assert shape.vision is not None
    assert (shape.vision.deepstack, shape.vision.window, shape.vision.gated) == ((0, 2), 0, False)
    usual = {
        "text_config": QWEN3_VL["text_config"] | {"num_hidden_layers": 36},
        "vision_config": {"out_hidden_size": 32},
    }
    tower = ModelShape.from_hf(QWEN3_VL | usual).vision
    assert tower is not None
    assert (tower.layers, tower.hidden, tower.deepstack, tower.positions) == (27, 1152, (8, 16, 24), 2304)


def test_llava_with_siglip_has_no_class_token():
    vision = ModelShape.from_hf(SIGLIP).vision
    assert vision is not None
    assert (vision.class_token, vision.projects_class, vision.positions) == (False, False, 16)
    assert dataclasses.replace(vision, images=((1, 4, 4),)).step_tokens() == 16


def _deepstack(layers):
    return QWEN3_VL | {"vision_config": QWEN3_VL["vision_config"] | {"deepstack_visual_indexes": layers}}


def _qwen(**tower):
    return QWEN_VL | {"vision_config": QWEN_VL["vision_config"] | tower}


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "qwen2_5_vl"}, "vision_config is None"),
        (_qwen(fullatt_block_indexes=3), "fullatt_block_indexes 3 and window_size 8; write a list of layers"),
        (_qwen(window_size=3), "window_size 3; .* at least one merged patch"),
        (_qwen(depth=10**9), "depth is 1000000000; give at most 100000"),
        (_qwen(num_heads=5), "hidden_size 24 is not a multiple of its 5 heads"),
        (LLAVA | {"vision_feature_layer": -5}, "vision_feature_layer is -5; .* from -4 to 3"),
        (LLAVA | {"vision_feature_layer": "last"}, "vision_feature_layer is 'last'"),
        (
            LLAVA | {"vision_config": {"model_type": "pixtral"}},
            "only clip_vision_model and siglip_vision_model are counted",
        ),
        (LLAVA | {"vision_config": {"model_type": "siglip_vision_model"}}, "no class token, .*; write "),
        (SIGLIP | {"vision_feature_select_strategy": "default"}, "vision_feature_select_strategy 'full'"),
        (_deepstack([4]), r"deepstack_visual_indexes \[4\]; write a list of its layers, from 0 to 3"),
        (_deepstack([1, 1]), "write each layer once"),
        (_deepstack([0, 1, 2, 3]), "no more of them than the text model has layers"),
        (LLAVA | {"text_config": {"model_type": "gemma"}}, "counted are llama, mistral, qwen2, qwen3"),
    ],
)
def test_refused(config, says):
    with pytest.raises(PerfError, match=says):
        ModelShape.from_hf(config)


@pytest.mark.parametrize("config", [QWEN_VL, QWEN3_VL])
def test_a_tower_that_does_not_fit_the_text_model_is_refused(config):
    wide = {"vision_config": config["vision_config"] | {"out_hidden_size": 48}}
    with pytest.raises(PerfError, match="out_hidden_size 48, and the text model hidden_size 32"):
        ModelShape.from_hf(config | wide)
    with pytest.raises(PerfError, match="quantization_config is given"):
        ModelShape.from_hf(config | {"quantization_config": {"quant_method": "awq"}})
