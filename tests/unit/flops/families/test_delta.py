"""The delta rule, by hand: h 4."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.families.delta import delta_rule, gated_delta_net, gated_delta_product, kimi_delta
from flagscale_perf.flops.tape import Tape
from flagscale_perf.flops.units import TOKEN
from flagscale_perf.flops_calculator import ModelShape, Packed, count, step_flops
from flagscale_perf.spine.errors import PerfError
from tests.unit.flops.families.walks import SIZES, forward, tape_of

# 1 key head of width 3, 2 value heads of width 5
GDN = {
    "experimental_attention_variant": "gated_delta_net",
    "linear_attention_freq": [1],
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 3,
    "linear_value_head_dim": 5,
}


def test_a_gated_delta_net() -> None:
    tape = tape_of(**GDN)
    assert gated_delta_net(tape, 0, True)
    assert forward(tape) == {
        ("gdn.in_proj", TOKEN): 2 * 4 * (2 * 3 + 2 * 10 + 2 * 2),
        ("gdn.conv1d", TOKEN): 2 * 4 * (2 * 3 + 10),
        ("gdn.core", TOKEN): 6 * 2 * 3 * 5,
        ("gdn.out_proj", TOKEN): 2 * 10 * 4,
    }
    megatron = Tape(tape.shape, "megatron")
    gated_delta_net(megatron, 0, True)
    assert forward(megatron)["gdn.core", TOKEN] == 8 * 2 * 5 * 5
    second = tape_of(**GDN | {"experimental_attention_variant": "gdn2"})
    gated_delta_net(second, 0, True)
    assert forward(second)["gdn.in_proj", TOKEN] == 2 * 4 * (4 * 3 + 3 * 10)


# 2 heads of width 3 with states of width 5, 1 group, 2 reflections
GDP = {
    "hybrid_layer_pattern": "M",
    "spec": ["megatron.core.models.hybrid.hybrid_layer_specs", "gdp_stack_spec"],
    "mamba_num_heads": 2,
    "mamba_head_dim": 3,
    "mamba_state_dim": 5,
    "mamba_num_groups": 1,
    "gdp_num_householder": 2,
}


def test_a_gated_delta_product() -> None:
    tape = tape_of(**GDP)
    assert gated_delta_product(tape, 0, True)
    assert forward(tape) == {
        ("gdp.in_proj", TOKEN): 2 * 4 * (6 + 2 * 6 + 2 * 5 + 5 + 3 * 2),
        ("gdp.conv1d", TOKEN): 2 * 4 * (2 * 6 + 2 * 5 + 5),
        ("gdp.core", TOKEN): 5 * 2 * 6 * 5,
        ("gdp.out_proj", TOKEN): 2 * 6 * 4,
    }
    megatron = Tape(tape.shape, "megatron")
    gated_delta_product(megatron, 0, True)
    assert forward(megatron)["gdp.core", TOKEN] == 11 * 6 * 5


def test_the_hardware_flops_of_a_gated_delta_product_are_unknown() -> None:
    shape = ModelShape.from_args(SIZES | GDP)
    assert shape.hardware_unknown == "the chunks of a recurrent core are not counted"
    model, hardware = step_flops(shape, 1, 2)
    assert (model, hardware) == (count(shape, 1, 2).totals["model_flops_causal_half"], None)
    assert step_flops(shape, 1, 2, Packed(2, 4)) == (model, None)
    with pytest.raises(PerfError, match="core chunked: there is no such formula"):
        count(shape, 1, 2, core="chunked")


# hidden size, heads, their width, state, groups, reflections -> products of 14 tokens, convolution, weights:
# counted in Megatron-LM main's own GatedDeltaProductMixer (d98e8a64), its kernels written as the recurrence
@pytest.mark.parametrize(
    ("sizes", "counted"),
    [
        ((32, 4, 8, 6, 2, 3), (238_336, 16_128, 7_784)),
        ((32, 4, 8, 6, 1, 1), (120_064, 4_928, 3_928)),
        ((24, 6, 5, 7, 3, 2), (164_472, 13_776, 5_358)),
        ((16, 2, 12, 4, 2, 4), (111_104, 15_232, 3_676)),
    ],
)
def test_megatrons_own_mixer_multiplies_as_much(sizes: tuple[int, ...], counted: tuple[int, ...]) -> None:
    heads = ("num_heads", "head_dim", "state_dim", "num_groups")
    given = dict(zip((f"mamba_{name}" for name in heads), sizes[1:5], strict=True))
    tape = tape_of(**GDP | given | {"hidden_size": sizes[0], "gdp_num_householder": sizes[5]})
    gated_delta_product(tape, 0, True)
    products = {name: 14 * flops for (name, _), flops in forward(tape).items()}
    conv = products.pop("gdp.conv1d")
    assert (sum(products.values()), conv, tape.parameters) == counted
    assert sum(tape.flops.values()) == 3 * sum(forward(tape).values())


def test_parts_of_a_gated_delta_product_are_recomputed() -> None:
    parts = ["gdp_in_proj", "gdp_qkv"]
    tape = tape_of(**GDP, recompute_granularity="selective", recompute_modules=parts)
    gated_delta_product(tape, 0, True)
    again = {term.component for term, flops in tape.flops.items() if term.phase == "recompute" and flops}
    assert again == {"gdp.in_proj", "gdp.conv1d"}


def test_kimi_delta_attention_by_the_names_of_its_modules() -> None:
    kimi = {"experimental_attention_variant": "kda", "linear_attention_freq": [1]}
    tape = tape_of(**kimi, linear_num_heads=2, linear_head_dim=3)
    assert kimi_delta(tape, 0, True)
    made = {name: flops for (name, unit), flops in forward(tape).items() if unit == TOKEN}
    assert made == {
        "kda.q_proj": 2 * 4 * 6,
        "kda.k_proj": 2 * 4 * 6,
        "kda.v_proj": 2 * 4 * 6,
        "kda.conv1d": 2 * 4 * 18,
        "kda.f_a_proj": 2 * 4 * 3,
        "kda.f_b_proj": 2 * 3 * 6,
        "kda.b_proj": 2 * 4 * 2,
        "kda.core": 6 * 2 * 3 * 3,
        "kda.g_a_proj": 2 * 4 * 3,
        "kda.g_b_proj": 2 * 3 * 6,
        "kda.o_proj": 2 * 6 * 4,
    }


def test_chunks_multiply_whole_tiles() -> None:
    core = delta_rule((2, 3, 5), 64)
    assert (core.recurrent, core.chunked) == (6 * 2 * 3 * 5, 2 * 2 * 64 * (3 * 3 + 2 * 5) + 6 * 2 * 3 * 5)


@pytest.mark.parametrize(
    ("block", "says"),
    [(gated_delta_net, "needs linear_num_key_heads"), (kimi_delta, "needs linear_num_heads and")],
)
def test_they_need_their_sizes(block, says) -> None:
    with pytest.raises(PerfError, match=says):
        block(tape_of(), 0, True)
