"""Who gets a gradient, and what is repeated."""

from __future__ import annotations

from flagscale_perf.flops.shape import Recompute, Shape
from flagscale_perf.flops.tape import TOKEN, Tape, Term, Unit, Weight

SHAPE = Shape(layers=1, hidden=4, heads=2, kv_groups=2, head_dim=3, ffn=8, gated=False, vocab=16)
WEIGHT = Weight("x", 4, 5)
PAIR = Unit("pair")


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
        assert tape.attention(q, k, v, 0, (3, 5)) == (q or k or v)
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
