"""The decoder around its layers."""

from __future__ import annotations

from flagscale_perf.flops.families.decoder import decoder
from tests.unit.flops.families.walks import forward, tape_of


def test_a_decoder_has_embedding_layers_and_logits() -> None:
    tape = tape_of(untie_embeddings_and_output_weights=True)
    decoder(tape)
    assert {name for name, _ in forward(tape)} == {"qkv_proj", "core_attention", "out_proj", "mlp", "logits"}
    norms, attention, mlp = 3 * 4, 4 * 12 + 4 * 4, 2 * 4 * 8
    assert tape.parameters == 2 * 4 * 16 + norms + attention + mlp
