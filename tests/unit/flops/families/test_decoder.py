"""The decoder around its layers."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.families.decoder import decoder
from flagscale_perf.flops_calculator import ModelShape, count
from tests.unit.flops.families.walks import forward, tape_of


def test_a_decoder_has_embedding_layers_and_logits() -> None:
    tape = tape_of(untie_embeddings_and_output_weights=True)
    decoder(tape)
    assert {name for name, _ in forward(tape)} == {"qkv_proj", "core_attention", "out_proj", "mlp", "logits"}
    norms, attention, mlp = 3 * 4, 4 * 12 + 4 * 4, 2 * 4 * 8
    assert tape.parameters == 2 * 4 * 16 + norms + attention + mlp


# streams, layers -> products of a forward pass, and weights: counted in the whole GPTModel of FlagScale's
# Megatron-LM-FL (175ae90ec)
@pytest.mark.parametrize(
    ("streams", "layers", "counted"),
    [
        (0, 2, (172_032, 5_456)),
        (4, 1, (217_088, 6_635)),
        (4, 2, (409_600, 11_969)),
        (2, 3, (313_344, 9_333)),
    ],
)
def test_each_block_mixes_the_residual_streams(streams: int, layers: int, counted: tuple[int, int]) -> None:
    given = {
        "num_layers": layers,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "ffn_hidden_size": 24,
        "swiglu": True,
        "normalization": "RMSNorm",
        "add_bias_linear": False,
        "padded_vocab_size": 32,
        "position_embedding_type": "rope",
        "untie_embeddings_and_output_weights": True,
        "enable_hyper_connections": bool(streams),
        "num_residual_streams": streams or 4,
    }
    shape = ModelShape.from_args(given)
    parts = count(shape, 2, 8).components
    assert (sum(phases["fwd"] for phases in parts.values()), shape.parameters) == counted
    assert sum(phases["bwd"] for phases in parts.values()) == 2 * counted[0]
    if streams:
        assert parts["mhc.mixing"]["fwd"] == 16 * 2 * layers * 2 * streams**2 * 16


def test_a_detached_prediction_gives_the_output_layer_no_gradient() -> None:
    # counted in Megatron-LM main's GPTModel (d98e8a64): the gradient of that one product less, and no other
    given = {"num_layers": 2, "padded_vocab_size": 32, "mtp_num_layers": 1, "hidden_size": 16}
    parts, detached = (
        count(tape_of(**given, mtp_detach_heads=each).shape, 2, 8).components for each in (False, True)
    )
    assert parts["mtp_logits"] == {"fwd": 16_384, "bwd": 32_768, "recompute": 0, "padding": 0}
    assert detached == parts | {"mtp_logits": parts["mtp_logits"] | {"bwd": 16_384}}
