"""Feed-forward blocks: which products they make, and how gradients flow through them."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.families.feed_forward import dense_mlp, mixture
from flagscale_perf.flops.units import EXPERT_ROW, TOKEN
from flagscale_perf.spine.errors import PerfError
from tests.unit.flops.families.walks import forward, tape_of


def test_a_mixture_needs_its_experts() -> None:
    with pytest.raises(PerfError, match="this family needs experts; give num_experts and moe_router_topk"):
        mixture(tape_of(), 0, True)


def test_layers_are_mixtures_or_dense() -> None:
    mixed = {"num_layers": 2, "num_experts": 4, "moe_router_topk": 2, "moe_layer_freq": [0, 1]}
    dense, routed = tape_of(**mixed), tape_of(**mixed)
    assert [dense.shape.layer_blocks(layer)[1] for layer in (0, 1, 2)] == ["mlp", "mixture", "mixture"]
    dense_mlp(dense, 0, True)
    mixture(routed, 1, True)
    assert forward(dense) == {("mlp", TOKEN): 2 * 2 * 4 * 8}
    assert forward(routed) == {
        ("moe_router", TOKEN): 2 * 4 * 4,
        ("moe_routed_experts", EXPERT_ROW): 2 * 2 * 4 * 8,
    }
    assert routed.parameters == 4 * 4 + 4 * 2 * 4 * 8  # the router, and two matrices of each expert


def test_a_gradient_starts_at_the_first_adapter() -> None:
    frozen = tape_of(peft_type="lora", lora_dim=1, lora_target_modules=["linear_fc1"])
    assert dense_mlp(frozen, 0, False)
