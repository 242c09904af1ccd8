"""Sparse latent attention with an indexer (DeepSeek-V3.2). n_i index heads of width d_i."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flagscale_perf.flops.families.attention import latent_attention
from flagscale_perf.flops.sizes import Indexer
from flagscale_perf.flops.step import Measure
from flagscale_perf.flops.tape import Tape, Weight, needed
from flagscale_perf.flops.units import NotPerToken, Pair, Unit


@dataclass(frozen=True)
class SparsePair(NotPerToken):
    """A query and one of the `topk` keys that the query sees."""

    topk: int

    def doubled(self, measure: Measure) -> int:
        """The full convention counts what a dense fallback multiplies."""
        if measure.convention == "full":
            return Pair().doubled(measure)
        sequences, lengths = measure.step.documents()
        return sequences * sum(self._doubled(length, measure.convention) for length in lengths)

    def _doubled(self, length: int, convention: str) -> int:
        seen = min(length, self.topk)
        if convention == "causal_half":
            return 2 * seen * length - seen * seen
        return seen * (seen + 1) + 2 * (length - seen) * seen


def sparse_attention(tape: Tape, layer: int, x: bool) -> bool:
    """Latent attention over the keys chosen by the indexer: `DSAttention` (arXiv:2512.02556)."""
    sizes = needed(tape.shape.indexer, "dsa_indexer_n_heads, dsa_indexer_head_dim and dsa_indexer_topk")
    if sizes.chooses(layer):
        rank = tape.shape.latent.q_lora_rank if tape.shape.latent else None
        # wk: h -> d_i
        index(tape, sizes, rank, [Weight("indexer.wk", tape.shape.hidden, sizes.head_dim)], Pair())
        tape.parameters += 2 * sizes.head_dim  # the keys' norm has a bias
    with tape.seeing(SparsePair(sizes.topk)):
        return latent_attention(tape, layer, x)


def index(tape: Tape, sizes: Indexer, rank: int | None, keys: Iterable[Weight], scores: Unit) -> None:
    """Its scores of these pairs. `rank`: of the queries that it is given; `keys`: makes its keys from h."""
    # Its inputs are detached: its own loss trains it, or nothing does. The gradients of its scores are those
    # of q and k.
    h, queries = tape.shape.hidden, sizes.heads * sizes.head_dim
    trained = sizes.trained and tape.trained
    # wq_b: r_q -> n_i d_i; weights_proj: h -> n_i
    for weight in (
        Weight("indexer.wq_b", rank or h, queries),
        *keys,
        Weight("indexer.weights_proj", h, sizes.heads),
    ):
        tape.detached(weight, trained)
    # q K^T of each head, and the sum over heads, weighted, which is a product, too
    flops = 2 * queries + 2 * sizes.heads
    tape.add("indexer.scores", scores, fwd=flops, bwd=2 * flops * trained)
