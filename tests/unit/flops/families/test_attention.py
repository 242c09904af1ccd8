"""Softmax attention: which products it makes, and how gradients flow through it."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.families.attention import grouped_attention, latent_attention
from flagscale_perf.flops.units import TOKEN, Pair
from flagscale_perf.spine.errors import PerfError
from tests.unit.flops.families.walks import forward, tape_of


def test_grouped_attention() -> None:
    tape = tape_of(group_query_attention=True, num_query_groups=1)
    assert grouped_attention(tape, 0, True)
    assert forward(tape) == {
        ("qkv_proj", TOKEN): 2 * 4 * (4 + 2 * 2),
        ("core_attention", Pair()): 2 * 2 * (2 + 2),
        ("out_proj", TOKEN): 2 * 4 * 4,
    }
    assert tape.parameters == 4 * (4 + 2 * 2) + 4 * 4


def test_latent_attention_needs_its_ranks() -> None:
    with pytest.raises(
        PerfError, match="this family needs multi_latent_attention; give q_lora_rank, kv_lora_rank"
    ):
        latent_attention(tape_of(), 0, True)


def test_no_gradient_flows_where_nothing_is_trained() -> None:
    frozen = tape_of(peft_type="lora", lora_dim=1, lora_target_modules=["linear_fc1"])
    assert not grouped_attention(frozen, 0, False)
