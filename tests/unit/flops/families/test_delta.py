"""The delta rule, by hand: h 4."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.families.delta import delta_rule, gated_delta_net, kimi_delta
from flagscale_perf.flops.tape import Tape
from flagscale_perf.flops.units import TOKEN
from flagscale_perf.spine.errors import PerfError
from tests.unit.flops.families.walks import forward, tape_of

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


def test_kimi_delta_attention_by_the_names_of_its_modules() -> None:
    kimi = {"experimental_attention_variant": "kda", "linear_attention_freq": [1]}
    tape = tape_of(**kimi, linear_num_heads=2, linear_head_dim=3)
    assert kimi_delta(tape, 0, True)
    made = {name: flops for (name, unit), flops in forward(tape).items() if unit == TOKEN}
    assert made == {
        "kda.q_proj": 2 * 4 * 6, "kda.k_proj": 2 * 4 * 6, "kda.v_proj": 2 * 4 * 6, "kda.conv1d": 2 * 4 * 18,
        "kda.f_a_proj": 2 * 4 * 3, "kda.f_b_proj": 2 * 3 * 6, "kda.b_proj": 2 * 4 * 2,
        "kda.core": 6 * 2 * 3 * 3, "kda.g_a_proj": 2 * 4 * 3, "kda.g_b_proj": 2 * 3 * 6,
        "kda.o_proj": 2 * 6 * 4,
    }  # fmt: skip


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
