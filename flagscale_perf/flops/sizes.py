"""Sizes of the blocks that are neither attention nor feed-forward, in the families' terms."""

from __future__ import annotations

from dataclasses import dataclass

OVERLAPPING = 4  # the ratio at which compressed keys of DeepSeek-V4 share what they are made of


@dataclass(frozen=True)
class Mamba:
    """A Mamba-2 layer (arXiv:2405.21060), or the Gated DeltaProduct (arXiv:2502.10297) in its place.

    Attributes:
        heads, head_dim: their number and width; together they are the layer's inner width.
        state: width of a head's state.
        groups: of heads that share their input and output matrices.
        conv: kernel of the convolution.
        chunk: tokens of a chunk of the kernel that runs it.
        in_bias, out_bias, conv_bias: its two linear layers and its convolution have one.
        householders: reflections of a Gated DeltaProduct for each token; 0 in Mamba-2.
    """

    heads: int
    head_dim: int
    state: int
    groups: int
    conv: int = 4
    chunk: int = 128
    in_bias: bool = False
    out_bias: bool = False
    conv_bias: bool = True
    householders: int = 0

    @property
    def inner(self) -> int:
        """The layer's inner width."""
        return self.heads * self.head_dim


@dataclass(frozen=True)
class DeltaNet:
    """A gated delta net (arXiv:2412.06464).

    Attributes:
        key_heads, value_heads: their numbers; a key serves several values.
        key_dim, value_dim: width of a head's key and value.
        conv: kernel of the convolution.
        second: the second form, with a gate for each channel of the keys (Megatron's gdn2).
        chunk: tokens of a chunk of the kernel that runs it.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int = 4
    second: bool = False
    chunk: int = 64


@dataclass(frozen=True)
class KimiDelta:
    """Kimi delta attention (arXiv:2510.26692).

    Attributes:
        heads, head_dim: number and width, of queries, keys and values alike.
        conv: kernel of the three convolutions.
        chunk: tokens of a chunk of the kernel that runs it.
    """

    heads: int
    head_dim: int
    conv: int = 4
    chunk: int = 64


@dataclass(frozen=True)
class Indexer:
    """The indexer, which chooses the keys of sparse latent attention (DeepSeek-V3.2).

    Attributes:
        heads, head_dim: of its own queries; all share one key.
        topk: keys a query sees.
        trained: it has a loss of its own; its input and the model's weights get no gradient from it.
        absorbed: whether the attention's core multiplies with the up-projections in it, 2 r_kv + d_r for a
            pair and a head; None where that is not known.
        every, first: behind the first `first` layers only each `every`-th chooses, for those up to the next.
    """

    heads: int
    head_dim: int
    topk: int
    trained: bool = False
    absorbed: bool | None = None
    every: int = 1
    first: int = 1

    def chooses(self, layer: int) -> bool:
        """Whether this layer has an indexer of its own."""
        return max(layer + 1 - self.first, 0) % self.every == 0


@dataclass(frozen=True)
class CompressedAttention:
    """DeepSeek-V4's attention.

    Attributes:
        ratios: of every layer, multi-token prediction's behind the decoder's: keys that one compressed key
            stands for; 0 for none.
        window: keys a query sees as they are, its own included.
        groups, rank: parts of the output projection, and the width to which each is brought first.
        indexer: of the layers whose ratio is `OVERLAPPING`; None where these see all compressed keys.
    """

    ratios: tuple[int, ...]
    window: int
    groups: int
    rank: int
    indexer: Indexer | None = None

    def indexer_of(self, layer: int) -> Indexer | None:
        """None in a layer without one."""
        return self.indexer if self.ratios[layer] == OVERLAPPING else None


@dataclass(frozen=True)
class Rwkv:
    """RWKV-4 (arXiv:2305.13048).

    Attributes:
        attention: width of the time mixing.
        ffn: inner width of the channel mixing.
    """

    attention: int
    ffn: int


@dataclass(frozen=True)
class Engram:
    """FlagScale's n-gram memories.

    Attributes:
        layers: those that have one.
        width: of what is looked up for a token, all n-grams and heads together.
        conv: kernel of the convolution.
        tables: weights of the tables of each of these layers.
    """

    layers: tuple[int, ...]
    width: int
    conv: int
    tables: tuple[int, ...]
