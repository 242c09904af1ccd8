"""The blocks of model families: which products they make, and how gradients flow through them."""

from __future__ import annotations

import pytest

from flagscale_perf.flops import parts
from flagscale_perf.flops.tape import EXPERT_ROW, TOKEN, Tape, Unit
from flagscale_perf.flops_calculator import ModelShape
from flagscale_perf.spine.errors import PerfError

# h 4, 2 heads of width 2, inner width 8, vocabulary 16
SIZES = {
    "num_layers": 1,
    "hidden_size": 4,
    "num_attention_heads": 2,
    "ffn_hidden_size": 8,
    "padded_vocab_size": 16,
    "normalization": "RMSNorm",
    "add_bias_linear": False,
    "position_embedding_type": "rope",
}


def tape_of(**more: object) -> Tape:
    return Tape(ModelShape.from_args(SIZES | more))


def forward(tape: Tape) -> dict[tuple[str, Unit], int]:
    return {(term.component, term.unit): flops for term, flops in tape.flops.items() if term.phase == "fwd"}


def test_grouped_attention() -> None:
    tape = tape_of(group_query_attention=True, num_query_groups=1)
    assert parts.grouped_attention(tape, 0, True)
    assert forward(tape) == {
        ("qkv_proj", TOKEN): 2 * 4 * (4 + 2 * 2),
        ("core_attention", Unit("pair")): 2 * 2 * (2 + 2),
        ("out_proj", TOKEN): 2 * 4 * 4,
    }
    assert tape.parameters == 4 * (4 + 2 * 2) + 4 * 4


def test_latent_attention_needs_its_ranks() -> None:
    with pytest.raises(
        PerfError, match="this family needs multi_latent_attention; give q_lora_rank, kv_lora_rank"
    ):
        parts.latent_attention(tape_of(), 0, True)


def test_a_mixture_needs_its_experts() -> None:
    with pytest.raises(PerfError, match="this family needs experts; give num_experts and moe_router_topk"):
        parts.mixture(tape_of(), 0, True)


def test_layers_are_mixtures_or_dense() -> None:
    mixed = {"num_layers": 2, "num_experts": 4, "moe_router_topk": 2, "moe_layer_freq": [0, 1]}
    dense, mixture = tape_of(**mixed), tape_of(**mixed)
    parts.dense_or_mixture(dense, 0, True)
    parts.dense_or_mixture(mixture, 1, True)
    assert forward(dense) == {("mlp", TOKEN): 2 * 2 * 4 * 8}
    assert forward(mixture) == {
        ("moe_router", TOKEN): 2 * 4 * 4,
        ("moe_routed_experts", EXPERT_ROW): 2 * 2 * 4 * 8,
    }
    assert mixture.parameters == 4 * 4 + 4 * 2 * 4 * 8  # the router, and two matrices of each expert


def test_no_gradient_flows_where_nothing_is_trained() -> None:
    frozen = tape_of(peft_type="lora", lora_dim=1, lora_target_modules=["linear_fc1"])
    assert not parts.grouped_attention(frozen, 0, False)
    assert parts.dense_mlp(frozen, 0, False)


def test_a_decoder_has_embedding_layers_and_logits() -> None:
    tape = tape_of(untie_embeddings_and_output_weights=True)
    parts.decoder(tape, parts.grouped_attention, parts.dense_mlp)
    assert {name for name, _ in forward(tape)} == {"qkv_proj", "core_attention", "out_proj", "mlp", "logits"}
    norms, attention, mlp = 3 * 4, 4 * 12 + 4 * 4, 2 * 4 * 8
    assert tape.parameters == 2 * 4 * 16 + norms + attention + mlp
