"""The traffic of a split forward pass, against figures worked out by hand and those of the requirement."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from split_inference.traffic import CallTraffic, ModelSizes, Pass, Stage, pass_traffic, total

LLAMA_1B = ModelSizes(layers=16, hidden=2048, heads=32, kv_heads=8, head_dim=64, ffn=8192, vocab=128256)
SMALL = ModelSizes(layers=1, hidden=8, heads=4, kv_heads=2, head_dim=2, ffn=16, vocab=10)
MIB = 2**20


@pytest.mark.parametrize(
    ("run", "calls", "sent_mib", "received_mib"),
    [
        (Pass(), 98, 3328.02, 3656.49),
        (Pass(item_bytes=2), 98, 1664.01, 1828.24),
        (Pass(repeat_kv=False), 98, 3136.02, 3656.49),
    ],
)
def test_traffic_of_the_requirements_model(run, calls, sent_mib, received_mib) -> None:
    made = pass_traffic(LLAMA_1B, run)
    assert len(made) == calls
    assert round(total(made).sent_bytes / MIB, 2) == sent_mib
    assert round(total(made).received_bytes / MIB, 2) == received_mib


def test_a_layer_of_six_calls_by_hand() -> None:
    # 3 tokens, 2 bytes: hidden 48, query 48, keys or values of a group pair 24, repeated 48, scores 4*3*3*2
    assert pass_traffic(SMALL, Pass(tokens=3, item_bytes=2)) == [
        CallTraffic("Embedding", 24, 48),
        CallTraffic("BatchLinear", 48, 48 + 24 + 24),
        CallTraffic("Matmul", 48 + 48, 72),
        CallTraffic("Matmul", 72 + 48, 48),
        CallTraffic("BatchLinear", 48, 48),
        CallTraffic("BatchLinear", 48, 2 * 96),
        CallTraffic("BatchLinear", 96, 48),
        CallTraffic("LMHead", 16, 20),
    ]


def test_decoding_sends_the_kept_keys_and_values() -> None:
    # one token after 5: query 16, keys of 6 tokens in 2 groups 6*2*2*2 = 48, scores 4*6*2 = 48
    made = pass_traffic(SMALL, Pass(tokens=1, cached=5, item_bytes=2, repeat_kv=False))
    assert made[2:4] == [CallTraffic("Matmul", 16 + 48, 48), CallTraffic("Matmul", 48 + 48, 16)]


@pytest.mark.parametrize(
    ("stage", "methods"),
    [
        (Stage.CALLS4, ["BatchLinear", "Matmul", "MatmulLinear", "MLP"]),
        (Stage.FUSED_ATTENTION, ["BatchLinear", "Attention", "BatchLinear", "BatchLinear", "BatchLinear"]),
        (Stage.FUSED_BLOCKS, ["BatchLinear", "AttentionLinear", "MLP"]),
        (Stage.FUSED_LAYER, ["fused_layer"]),
    ],
)
def test_calls_of_a_layer(stage, methods) -> None:
    made = pass_traffic(SMALL, Pass(stage=stage, tokens=3))
    assert [call.method for call in made] == ["Embedding", *methods, "LMHead"]


@pytest.mark.parametrize(
    ("stage", "layer_mib"),
    [(Stage.CALLS6, 218), (Stage.FUSED_ATTENTION, 84), (Stage.FUSED_BLOCKS, 28), (Stage.FUSED_LAYER, 8)],
)
def test_bytes_of_a_layer_in_bfloat16(stage, layer_mib) -> None:
    whole = total(pass_traffic(LLAMA_1B, Pass(stage=stage, item_bytes=2))[1:-1])
    assert whole.sent_bytes + whole.received_bytes == 16 * layer_mib * MIB


sizes = st.builds(
    lambda groups, **rest: ModelSizes(heads=groups * rest["kv_heads"], **rest),
    groups=st.integers(1, 8),
    **{name: st.integers(1, 64) for name in ("layers", "hidden", "kv_heads", "head_dim", "ffn", "vocab")},
)


@given(sizes, st.integers(1, 512), st.sampled_from([2, 4]))
def test_six_calls_equal_the_formula_of_the_facts(model, s, b) -> None:
    made = pass_traffic(model, Pass(tokens=s, item_bytes=b))
    h, q, kv = model.hidden, model.heads * model.head_dim, model.kv_heads * model.head_dim
    scores, f = model.heads * s * s, s * model.ffn
    sent = b * (2 * s * h + 2 * s * q + scores + s * q + s * q + f) * model.layers + 8 * s + h * b
    received = (
        b * model.layers * (s * q + 2 * s * kv + scores + s * q + 2 * f + 2 * s * h)
        + s * h * b
        + model.vocab * b
    )
    assert total(made) == CallTraffic("total", sent, received)
    assert len(made) == 6 * model.layers + 2


@given(sizes, st.sampled_from(Stage), st.integers(1, 64), st.integers(0, 64), st.integers(1, 4))
def test_half_the_item_is_half_the_bytes_but_for_token_ids(model, stage, tokens, cached, batch) -> None:
    def moved(item_bytes: int) -> CallTraffic:
        return total(pass_traffic(model, Pass(stage, batch, tokens, cached, item_bytes)))

    ids = 8 * batch * tokens
    assert moved(4).sent_bytes - ids == 2 * (moved(2).sent_bytes - ids)
    assert moved(4).received_bytes == 2 * moved(2).received_bytes
