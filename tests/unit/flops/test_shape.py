"""Sizes no model has are refused, naming the argument."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.shape import Experts, Lora, Shape, Window
from flagscale_perf.flops.towers import Encoder, Vision
from flagscale_perf.spine.errors import PerfError

SIZES = {
    "layers": 2,
    "hidden": 8,
    "heads": 4,
    "kv_groups": 4,
    "head_dim": 2,
    "ffn": 16,
    "gated": False,
    "vocab": 32,
}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"vocab": 0}, "padded_vocab_size is 0"),
        ({"kv_groups": 3}, "num_query_groups 3 does not divide num_attention_heads 4"),
        ({"experts": Experts(4, 2, 8, (True,))}, "moe_layer_freq describes 1 layers, num_layers is 2"),
        ({"experts": Experts(4, 5, 8, (True, True))}, "moe_router_topk is 5, num_experts 4"),
        ({"frozen": ("layers.2",)}, "frozen weight 'layers.2' is not known; .* layers.0 to layers.1"),
        (
            {"encoder": Encoder(2), "experts": Experts(4, 2, 8, (True, True))},
            "num_experts in a model with an encoder is not counted",
        ),
        (
            {"lora": Lora(4, ("linear_qkv",)), "encoder": Encoder(2)},
            "peft_type lora in a model with a vision tower or an encoder",
        ),
    ],
)
def test_refused(more, says):
    with pytest.raises(PerfError, match=says):
        Shape(**SIZES | more)


def test_layers_past_the_last_are_like_the_last():
    shape = Shape(**SIZES, experts=Experts(4, 2, 8, (True, False)), window=Window(5, (True, False, True)))
    assert [shape.is_moe(layer) for layer in range(4)] == [True, False, False, False]
    assert [shape.window_left(layer) for layer in range(3)] == [5, -1, 5]


def test_what_a_step_costs_may_not_be_known_of_a_model():
    Shape(**SIZES).check_step()
    Shape(**SIZES | {"encoder": Encoder(2, decoder_seq_length=5)}).check_step()
    with pytest.raises(PerfError, match="decoder_seq_length is missing"):
        Shape(**SIZES | {"encoder": Encoder(2)}).check_step()


def test_images_have_room_among_the_tokens():
    tower = Vision(1, 8, 2, 16, False, 12, 32, merge=2, images=((1, 6, 10), (3, 4, 4)))
    shape = Shape(**SIZES | {"vision": tower})
    shape.check_step(tokens=15 + 3 * 4)
    with pytest.raises(PerfError, match="image_grids are 27 tokens, and the step has 26"):
        shape.check_step(tokens=26)
