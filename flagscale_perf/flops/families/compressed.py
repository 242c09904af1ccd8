"""DeepSeek-V4's attention, to a window and to compressed keys. n heads of width d, r_q the queries' rank."""

from __future__ import annotations

from dataclasses import dataclass

from flagscale_perf.flops.families.indexer import index
from flagscale_perf.flops.sizes import OVERLAPPING
from flagscale_perf.flops.step import Measure
from flagscale_perf.flops.tape import Tape, Weight
from flagscale_perf.flops.units import NotPerToken, double_visible
from flagscale_perf.spine.errors import PerfError


@dataclass(frozen=True)
class CompressedPair(NotPerToken):
    """A query and one of the keys that it sees: the last `window`, and compressed ones.

    Attributes:
        window: its own key included.
        ratio: keys that one compressed key stands for; 0 for no compressed ones.
        topk: compressed keys that a query sees; None for all.
    """

    window: int
    ratio: int
    topk: int | None = None

    def doubled(self, measure: Measure) -> int:
        """The full convention has as many keys for each query as for the last one."""
        step = measure.step
        if measure.convention == "full":
            near, far = self._seen(step.seq_length)
            return 2 * step.tokens * (near + far)
        sequences, lengths = step.documents()
        count = self._half if measure.convention == "causal_half" else self._visible
        return sequences * sum(map(count, lengths))

    def _seen(self, length: int) -> tuple[int, int]:
        far = length // self.ratio if self.ratio else 0
        return min(length, self.window), far if self.topk is None else min(far, self.topk)

    def _half(self, length: int) -> int:
        near, far = self._seen(length)
        return 2 * length * (near + far) - near * near - self.ratio * far * far

    def _visible(self, length: int) -> int:
        near, far = self._seen(length)
        # The i-th query, from 1, sees `i // ratio` compressed keys until these are all that it may see.
        compressed = self.ratio * far * (far - 1) + 2 * far * (length - self.ratio * far + 1)
        return (double_visible(length, near - 1) if near else 0) + compressed


def compressed_attention(tape: Tape, layer: int, x: bool) -> bool:
    """One key for all heads, which is the value, too: `DSv4HybridSelfAttention` of FlagScale."""
    shape, mla, sizes = tape.shape, tape.shape.latent, tape.shape.compressed
    if mla is None or mla.q_lora_rank is None or sizes is None:
        raise PerfError("model: this family needs q_lora_rank, v_head_dim and csa_compress_ratios")
    width, ratio, indexer = shape.heads * mla.v_head_dim, sizes.ratios[layer], sizes.indexer_of(layer)
    # linear_q_down_proj: h -> r_q; linear_q_up_proj: r_q -> n d; linear_kv_proj: h -> d
    q = tape.linear(Weight("qkv_proj.q_down_proj", shape.hidden, mla.q_lora_rank, "linear_q_down_proj"), x)
    q = tape.norm(q, mla.q_lora_rank) if shape.qk_norm else q
    with tape.recomputed("mla_up_proj"):
        q = tape.linear(Weight("qkv_proj.q_up_proj", mla.q_lora_rank, width, "linear_q_up_proj"), q)
        kv = tape.linear(Weight("qkv_proj.kv_proj", shape.hidden, mla.v_head_dim, "linear_kv_proj"), x)
        kv = tape.norm(kv, mla.v_head_dim) if shape.qk_norm else kv
    if ratio:
        for weight in _compressor(tape, "compressor", ratio, mla.v_head_dim):
            kv |= tape.linear(weight, x)
    if indexer:
        keys = _compressor(tape, "indexer", ratio, indexer.head_dim)
        index(tape, indexer, mla.q_lora_rank, keys, CompressedPair(0, ratio))
    tape.parameters += shape.heads  # attn_sink
    pairs = CompressedPair(sizes.window, ratio, indexer.topk if indexer else None)
    y = tape.attention(q, kv, kv, pairs, (width, width))
    # linear_o_group_proj: g parts of n d / g -> r_o each; linear_proj: g r_o -> h
    y = tape.linear(Weight("out_proj.group_proj", width, sizes.rank), y)
    out = sizes.groups * sizes.rank
    return tape.linear(Weight("out_proj", out, shape.hidden, "linear_proj", shape.linear_bias), y)


def _compressor(tape: Tape, name: str, ratio: int, width: int) -> list[Weight]:
    # h -> c d each, c = 2 where neighbours overlap; pooling and positions are elementwise
    pooled = width * (2 if ratio == OVERLAPPING else 1)
    tape.parameters += ratio * pooled + width  # ape, and a norm without a bias
    return [Weight(f"{name}.{part}", tape.shape.hidden, pooled) for part in ("wkv", "wgate")]
