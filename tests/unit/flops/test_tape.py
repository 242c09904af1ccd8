"""Who gets a gradient, and what is repeated."""

from __future__ import annotations

from flagscale_perf.flops.shape import Lora, Recompute, Shape
from flagscale_perf.flops.tape import Core, Tape, Term, Weight
from flagscale_perf.flops.units import TOKEN, ChunkRow, Pair, Token

SHAPE = Shape(layers=1, hidden=4, heads=2, kv_groups=2, head_dim=3, ffn=8, gated=False, vocab=16)
WEIGHT = Weight("x", 4, 5)
PAIR = Pair()


def walked(tape, component="x", unit=TOKEN):
    return tuple(tape.flops[Term(component, phase, unit)] for phase in ("fwd", "bwd", "recompute"))


def test_a_trained_weight_costs_its_own_gradient_and_its_inputs():
    tape = Tape(SHAPE)
    assert tape.linear(WEIGHT, x=False)
    assert walked(tape) == (40, 40, 0)
    assert tape.linear(WEIGHT, x=True)
    assert walked(tape) == (80, 40 + 80, 0)


def test_a_frozen_weight_costs_its_inputs_gradient_alone():
    tape = Tape(Shape(**vars(SHAPE) | {"frozen": ("layers.0",)}))
    with tape.layer("layers.0"):
        assert not tape.linear(WEIGHT, x=False)
        assert walked(tape) == (40, 0, 0)
        assert tape.linear(WEIGHT, x=True)
    assert walked(tape) == (80, 40, 0)


def test_adapters_are_frozen_with_the_layer_they_are_in():
    tape = Tape(
        Shape(**vars(SHAPE) | {"layers": 2, "lora": Lora(5, ("linear_qkv",)), "frozen": ("layers.0",)})
    )
    weight, x = Weight("x", 3, 4, module="linear_qkv"), False
    seen = []
    for _ in tape.layers():
        x = tape.linear(weight, x)
        seen.append((x, tape.flops[Term("lora", "bwd", TOKEN)], tape.flops[Term("x", "bwd", TOKEN)]))
    # down: 2 x 3 x 5, up: 2 x 5 x 4. Behind the frozen one the input needs no gradient, A and B do.
    assert seen == [(False, 0, 0), (True, 30 + 2 * 40, 0)]


def test_attention_gives_a_gradient_to_each_operand_that_needs_one():
    keys, values = 2 * 2 * 3, 2 * 2 * 5
    expected = {
        (False, False, False): 0,
        (True, False, False): keys + values,  # to q; to the scores
        (False, True, True): keys + 2 * values,
        (False, False, True): values,
        (True, True, True): 2 * keys + 2 * values,
    }
    for (q, k, v), backward in expected.items():
        tape = Tape(SHAPE)
        assert tape.attention(q, k, v, tape.pairs(0), (6, 10)) == (q or k or v)
        assert walked(tape, "core_attention", PAIR) == (keys + values, backward, 0)


def test_nested_recomputation_repeats_once_for_each_enclosing_part():
    tape = Tape(Shape(**vars(SHAPE) | {"recompute": Recompute(modules=("moe", "shared_experts"))}))
    with tape.recomputed("moe"):
        tape.linear(WEIGHT, x=True)
        with tape.recomputed("shared_experts"):
            tape.linear(WEIGHT._replace(component="y"), x=True)
    with tape.recomputed("mlp"):
        tape.linear(WEIGHT._replace(component="z"), x=True)
    assert [walked(tape, component)[2] for component in "xyz"] == [40, 80, 0]


def test_a_layers_prefix_and_repetition_end_with_it():
    tape = Tape(SHAPE)
    with tape.layer("mtp", "mtp_", repeated=True):
        tape.linear(WEIGHT, x=True)
    tape.linear(WEIGHT, x=True)
    assert (walked(tape, "mtp_x"), walked(tape)) == ((40, 80, 40), (40, 80, 0))


def test_parameters_count_norms_biases_and_every_expert():
    tape = Tape(SHAPE)
    tape.norm(x=True, width=4)
    tape.linear(Weight("x", 4, 5, bias=True, copies=3), x=True)
    assert tape.parameters == 4 + 3 * (20 + 5)


def test_a_stream_has_rows_pairs_and_names_of_its_own():
    tape, row, pairs = Tape(SHAPE), ChunkRow(4, restarts=False), Pair(7)
    with tape.stream("encoder_", row, pairs):
        with tape.layer("layers.0"):
            tape.linear(WEIGHT, x=True)
        tape.attention(True, True, True, tape.pairs(0), (6, 10))
    tape.linear(WEIGHT, x=True)
    assert walked(tape, "encoder_x", row) == walked(tape) == (40, 80, 0)
    assert walked(tape, "encoder_core_attention", pairs) == (32, 64, 0)
    assert tape.pairs(0) == PAIR


def test_a_convolution_has_a_weight_for_each_channel_and_place():
    tape = Tape(SHAPE)
    assert tape.conv("x", channels=6, kernel=4, x=False)
    assert (walked(tape), tape.parameters) == ((48, 48, 0), 24)


def test_a_core_counts_in_the_form_of_the_tape():
    core = Core(recurrent=10, chunked=30, chunk=4, restarts=True, megatron=14)
    forms = {"recurrent": (10, Token()), "chunked": (30, ChunkRow(4, restarts=True)), "megatron": (14, TOKEN)}
    for form, (flops, unit) in forms.items():
        tape = Tape(SHAPE, form)
        assert tape.core("x", core, x=True)
        assert walked(tape, unit=unit) == (flops, 2 * flops, 0)
        assert tape.known
    tape = Tape(SHAPE, "megatron")
    tape.core("x", core._replace(megatron=None), x=True)
    assert not tape.known
