"""RWKV-4, by hand: h 4, time mixing 6 wide, channel mixing 8."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.families.rwkv import channel_mix, time_mix
from flagscale_perf.flops.units import TOKEN
from flagscale_perf.spine.errors import PerfError
from tests.unit.flops.families.walks import forward, tape_of


def test_what_a_token_costs() -> None:
    tape = tape_of(layer_blocks=[["rwkv_time_mix", "rwkv_channel_mix"]], attention_hidden_size=6)
    assert time_mix(tape, 0, True)
    assert channel_mix(tape, 0, True)
    assert forward(tape) == {
        ("rwkv_time_mix", TOKEN): 4 * 2 * 4 * 6,
        ("rwkv_channel_mix", TOKEN): 2 * (2 * 4 * 8 + 4 * 4),
    }


def test_they_need_their_sizes() -> None:
    for block in (time_mix, channel_mix):
        with pytest.raises(PerfError, match="needs RWKV's sizes; give attention_hidden_size"):
            block(tape_of(), 0, True)
