"""What a split LLaMA or Qwen forward pass sends and receives, call by call: its plaintext in words, and its
bytes in closed form.

The protected side calls; the GPU side multiplies. This is pure arithmetic on the model's sizes: a log is
checked against it to the byte, and a diagnosis uses it to tell what another split, type or length would move.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

TOKEN_ID_BYTES = 8  # int64
# By method, the plaintext that it shows the GPU side. Nothing is masked: who controls that side reads it.
REVEALS = {
    "Init": "nothing; the norms' weights and the rotary frequencies come from the GPU side",
    "Embedding": "the token ids: the text itself",
    "BatchLinear": "the input of the projections, so also Q, K, V, gate and up",
    "Matmul": "Q and K, then the attention probabilities and V",
    "MatmulLinear": "the attention probabilities and V, so also the attention's output",
    "Attention": "Q, K and V; scores and probabilities are made on the GPU side",
    "AttentionLinear": "Q, K and V; scores, probabilities and output are made on the GPU side",
    "MLP": "the input of the MLP, and all that is computed in it",
    "LMHead": "the last token's hidden state and its logits",
    "fused_layer": "everything: hidden state, norms, scores, softmax, residuals and the key-value cache are "
    "the GPU side's. This gives up the protection",
}


class Stage(str, Enum):
    """How a layer is split into calls; each value moves more of the layer to the GPU side than the one
    before.
    """

    CALLS6 = "calls6"  # qkv; Q K^T; P V; o; gate and up; down
    CALLS4 = "calls4"  # qkv; Q K^T; P V and o; the MLP
    FUSED_ATTENTION = "fused_attention"  # qkv; attention; o; gate and up; down
    FUSED_BLOCKS = "fused_blocks"  # qkv; attention and o; the MLP
    FUSED_LAYER = "fused_layer"  # the layer

    __str__ = str.__str__  # its value, as enum.StrEnum has it since Python 3.11


@dataclass(frozen=True)
class ModelSizes:
    """Sizes of a decoder with (grouped) multi-head attention and a gated MLP."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int


@dataclass(frozen=True)
class Pass:
    """One forward pass over the model.

    Attributes:
        tokens: new ones of each sequence: the prompt's in a prefill, 1 in a decoding step.
        cached: earlier ones, whose keys and values are kept.
        item_bytes: of an activation: 4 for float32, 2 for float16 and bfloat16.
        repeat_kv: keys and values go once per query head instead of once per group of them; of matter only
            where `Matmul` takes them.
    """

    stage: Stage = Stage.CALLS6
    batch: int = 1
    tokens: int = 1024
    cached: int = 0
    item_bytes: int = 4
    repeat_kv: bool = True


class CallTraffic(NamedTuple):
    """One call's bytes of arrays."""

    method: str
    sent_bytes: int
    received_bytes: int


def pass_traffic(model: ModelSizes, run: Pass) -> list[CallTraffic]:
    """The calls of one pass in order: Embedding, the layers, LMHead (of the last token)."""
    row = run.batch * model.hidden * run.item_bytes
    embedding = CallTraffic("Embedding", run.batch * run.tokens * TOKEN_ID_BYTES, run.tokens * row)
    head = CallTraffic("LMHead", row, run.batch * model.vocab * run.item_bytes)
    return [embedding, *_layer(model, run) * model.layers, head]


def total(calls: list[CallTraffic]) -> CallTraffic:
    """The bytes of all calls together."""
    return CallTraffic(
        "total", sum(call.sent_bytes for call in calls), sum(call.received_bytes for call in calls)
    )


def declaration(methods: Iterable[str]) -> str:
    """The lines about these methods."""
    named = list(methods)
    lines = [f"  {method:<16} {REVEALS[method]}" for method in named]
    side = "GPU" if "fused_layer" in named else "protected"
    cache = f"The key-value cache is kept on the {side} side."
    return "\n".join(["Plaintext that the GPU side is shown:", *lines, cache])


def _layer(model: ModelSizes, run: Pass) -> list[CallTraffic]:
    hidden = run.batch * run.tokens * model.hidden * run.item_bytes
    if run.stage is Stage.FUSED_LAYER:
        return [CallTraffic("fused_layer", hidden, hidden)]
    query = run.batch * run.tokens * model.heads * model.head_dim * run.item_bytes
    new_kv = 2 * run.batch * run.tokens * model.kv_heads * model.head_dim * run.item_bytes
    qkv = CallTraffic("BatchLinear", hidden, query + new_kv)
    return [qkv, *_attention(model, run, query, hidden), *_mlp(model, run, hidden)]


def _attention(model: ModelSizes, run: Pass, query: int, hidden: int) -> list[CallTraffic]:
    seen = run.cached + run.tokens
    group = run.batch * seen * model.head_dim * run.item_bytes
    one = group * (model.heads if run.repeat_kv else model.kv_heads)  # the keys, or the values
    both = 2 * group * model.kv_heads
    scores = run.batch * model.heads * run.tokens * seen * run.item_bytes
    output = CallTraffic("BatchLinear", query, hidden)
    return {
        Stage.CALLS6: [
            CallTraffic("Matmul", query + one, scores),
            CallTraffic("Matmul", scores + one, query),
            output,
        ],
        Stage.CALLS4: [
            CallTraffic("Matmul", query + one, scores),
            CallTraffic("MatmulLinear", scores + one, hidden),
        ],
        Stage.FUSED_ATTENTION: [CallTraffic("Attention", query + both, query), output],
        Stage.FUSED_BLOCKS: [CallTraffic("AttentionLinear", query + both, hidden)],
    }[run.stage]


def _mlp(model: ModelSizes, run: Pass, hidden: int) -> list[CallTraffic]:
    if run.stage in (Stage.CALLS4, Stage.FUSED_BLOCKS):
        return [CallTraffic("MLP", hidden, hidden)]
    inner = run.batch * run.tokens * model.ffn * run.item_bytes
    return [CallTraffic("BatchLinear", hidden, 2 * inner), CallTraffic("BatchLinear", inner, hidden)]
