"""A model's shape: the sizes of its matrices, and which of them are recomputed or frozen.

Frozen, hashable and built of plain numbers, so that it can be a cache key and go to JSON as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flagscale_perf.flops.sizes import CompressedAttention, DeltaNet, Engram, Indexer, KimiDelta, Mamba, Rwkv
from flagscale_perf.flops.towers import BertHeads, Encoder, Vision
from flagscale_perf.spine.errors import PerfError

RECOMPUTE_MODULES = (
    *("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts", "gdn_norm_out"),
    *("gdp_in_proj", "gdp_qkv"),
)
LORA_TARGETS = (
    *("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2", "linear_q_proj", "linear_q_down_proj"),
    *("linear_q_up_proj", "linear_kv_proj", "linear_kv_down_proj", "linear_kv_up_proj"),
)

# Names in `Shape.frozen` of what "language_model" is not.
OUTSIDE_LANGUAGE_MODEL = ("vision", "projector", "encoder")

# Field -> the argument it comes from.
_SIZES = {
    "layers": "num_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_groups": "num_query_groups",
    "head_dim": "kv_channels",
    "ffn": "ffn_hidden_size",
    "vocab": "padded_vocab_size",
}


@dataclass(frozen=True)
class LatentAttention:
    """Multi-latent attention (DeepSeek-V2, arXiv:2405.04434): low-rank projections for q, k and v.

    Attributes:
        q_lora_rank: rank of the queries' projection; None where they are projected directly.
        kv_lora_rank: rank shared by keys and values.
        qk_head_dim: width of a head's query and key without position.
        qk_pos_emb_head_dim: width of its rotary part, shared by all heads in the key.
        v_head_dim: width of a head's value.
    """

    q_lora_rank: int | None
    kv_lora_rank: int
    qk_head_dim: int
    qk_pos_emb_head_dim: int
    v_head_dim: int

    @property
    def q_dim(self) -> int:
        """Width of one head's query."""
        return self.qk_head_dim + self.qk_pos_emb_head_dim


@dataclass(frozen=True)
class Experts:
    """Mixture of experts.

    Attributes:
        count: routed experts of a layer.
        topk: experts a token goes to.
        ffn_hidden_size: inner width of one routed expert.
        layers: for every decoder layer, whether its feed-forward block is a mixture.
        shared_ffn_hidden_size: inner width of all shared experts together; 0 for none.
        shared_gate: the shared experts' output goes through a sigmoid gate with a weight of its own.
        latent_size: width the routed experts work at; None for the model's own.
        capacity_factor: set where every expert's input is padded to its capacity; None otherwise.
        drops: tokens beyond a capacity are dropped and nothing is padded; how many, only the router knows.
    """

    count: int
    topk: int
    ffn_hidden_size: int
    layers: tuple[bool, ...]
    shared_ffn_hidden_size: int = 0
    shared_gate: bool = False
    latent_size: int | None = None
    capacity_factor: float | None = None
    drops: bool = False


@dataclass(frozen=True)
class Recompute:
    """Activations that are recomputed in the backward pass.

    Attributes:
        full_layers: for every decoder layer, whether the whole layer is repeated.
        together: how many layers that follow one another are repeated as one, in the model's order; (): each
            by itself. It matters where some of them are frozen.
        full_mtp: the multi-token-prediction layers are repeated whole.
        modules: parts repeated in every layer, of `RECOMPUTE_MODULES`.
        known: False where it differs by stage and micro-batch; hardware FLOPs are then unknown.
    """

    full_layers: tuple[bool, ...] = ()
    together: tuple[int, ...] = ()
    full_mtp: bool = False
    modules: tuple[str, ...] = ()
    known: bool = True

    def parts(self, layers: int) -> Iterator[tuple[range, bool]]:
        """Groups of layers that are recomputed as one, and whether they are."""
        begin = 0
        for count in self.together or (1,) * layers:
            yield range(begin, begin + count), bool(self.full_layers) and self.full_layers[begin]
            begin += count


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters (arXiv:2106.09685); everything else is frozen.

    Attributes:
        dim: the adapters' rank.
        targets: linear layers that have one, of `LORA_TARGETS`.
    """

    dim: int
    targets: tuple[str, ...]


@dataclass(frozen=True)
class Window:
    """Sliding-window attention.

    Attributes:
        left: keys visible before the query's own; -1 for all.
        layers: for every decoder and then every multi-token-prediction layer, whether it has the window.
    """

    left: int
    layers: tuple[bool, ...]


@dataclass(frozen=True)
class Shape:
    """One decoder-only transformer as it is trained.

    Attributes:
        layers: decoder layers, without those of multi-token prediction.
        hidden: width of the residual stream.
        heads: query heads.
        kv_groups: key and value heads.
        head_dim: width of one head (Megatron's kv_channels).
        ffn: inner width of a dense feed-forward block.
        gated: the feed-forward blocks have a gate, hence three matrices instead of two.
        vocab: rows of the output layer, padding included.
        declared_family: what the source calls the model; "" if it does not say.
        latent: multi-latent attention; None for the usual one.
        experts: mixture of experts; None for a dense model.
        mtp_layers: multi-token-prediction depths.
        mtp_shared: these depths have the same weights.
        mtp_detached: what these depths predict gives the output layer no gradient.
        output_gate: attention's output is gated by a further query-sized projection.
        sinks: each query head has a learned share of attention that goes to no key; a parameter only.
        head_gate: attention's output is gated by a further number for each query head.
        window: sliding window; None for full causal attention.
        recompute: what is computed twice.
        lora: adapters; None where the weights themselves are trained.
        frozen: weights without a gradient: "embedding", "output_layer", "layers.N", "mtp", "vision",
            "projector", "encoder", and "language_model" for all that is none of the last three.
        norm_bias, linear_bias, qkv_bias, out_bias, qk_norm, tied_embeddings: matter for the number of
            parameters only.
        learned_positions: rows of a learned position embedding; 0 for none.
        blocks: of every decoder layer, the names of its blocks in `families.BLOCKS`; empty where each layer
            is an attention and a feed-forward block.
        mtp_blocks: of a depth of multi-token prediction; empty where it is like the decoder's last layer.
        mamba, delta, kda, indexer, compressed, rwkv, engram: sizes of blocks of these kinds; None where there
            is none.
        streams: residual streams that every block mixes by products of its own (mHC); 0 for the usual one.
        vision, encoder, bert: what stands beside the decoder, or in its place; None for nothing.
        micro_batch: sequences of one forward pass of one rank; None if unknown. Needed for a capacity factor.
        sequence_shards: ranks that share a sequence when it is routed to experts (by context parallelism, and
            by tensor parallelism with sequence parallelism).
    """

    layers: int
    hidden: int
    heads: int
    kv_groups: int
    head_dim: int
    ffn: int
    gated: bool
    vocab: int
    declared_family: str = ""
    latent: LatentAttention | None = None
    experts: Experts | None = None
    mtp_layers: int = 0
    mtp_shared: bool = False
    mtp_detached: bool = False
    output_gate: bool = False
    sinks: bool = False
    head_gate: bool = False
    window: Window | None = None
    recompute: Recompute = Recompute()
    lora: Lora | None = None
    frozen: tuple[str, ...] = ()
    norm_bias: bool = False
    linear_bias: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False
    tied_embeddings: bool = False
    learned_positions: int = 0
    blocks: tuple[tuple[str, ...], ...] = ()
    mtp_blocks: tuple[str, ...] = ()
    mamba: Mamba | None = None
    delta: DeltaNet | None = None
    kda: KimiDelta | None = None
    indexer: Indexer | None = None
    compressed: CompressedAttention | None = None
    rwkv: Rwkv | None = None
    engram: Engram | None = None
    streams: int = 0
    vision: Vision | None = None
    encoder: Encoder | None = None
    bert: BertHeads | None = None
    micro_batch: int | None = None
    sequence_shards: int = 1

    def __post_init__(self) -> None:
        """Refuses impossible models. Raises PerfError."""
        for name, argument in _SIZES.items():
            if getattr(self, name) < 1:
                raise PerfError(f"model: {argument} is {getattr(self, name)}; give a whole number above 0")
        if self.heads % self.kv_groups:
            raise PerfError(
                f"model: num_query_groups {self.kv_groups} does not divide num_attention_heads {self.heads}; "
                "give a divisor"
            )
        if self.experts:
            self._check_experts(self.experts)
        if self.lora and (self.vision or self.encoder or self.bert):
            raise PerfError(
                "model: peft_type lora in a model with a vision tower or an encoder is not counted; describe "
                "the model without adapters"
            )
        if self.encoder or self.bert:
            self._check_plain()
        self._check_frozen()

    def _check_plain(self) -> None:
        fields = {
            "num_experts": self.experts,
            "multi_latent_attention": self.latent,
            "window_size": self.window,
            "mtp_num_layers": self.mtp_layers,
            "layers of other blocks": self.blocks,
            "enable_hyper_connections": self.streams,
        }
        for name, value in fields.items():
            if value:
                raise PerfError(
                    f"model: {name} in a model with an encoder is not counted; describe the model without"
                )

    def _check_experts(self, experts: Experts) -> None:
        if len(experts.layers) != self.layers:
            raise PerfError(
                f"model: moe_layer_freq describes {len(experts.layers)} layers, num_layers is {self.layers}; "
                "make them agree"
            )
        if not 1 <= experts.topk <= experts.count:
            raise PerfError(
                f"model: moe_router_topk is {experts.topk}, num_experts {experts.count}; "
                "give a number from 1 to num_experts"
            )

    def _check_frozen(self) -> None:
        numbered = {f"layers.{layer}" for layer in range(self.layers)}
        known = {"embedding", "output_layer", "mtp"} | numbered
        known |= {"vision", "projector", "language_model"} if self.vision else set()
        known |= {"encoder"} if self.encoder else set()
        for name in self.frozen:
            if name not in known:
                last = f"layers.{self.layers - 1}"
                raise PerfError(
                    f"model: frozen weight {name!r} is not known; "
                    f"write {', '.join(sorted(known - numbered))} or layers.0 to {last}"
                )

    def check_step(self, tokens: int | None = None) -> None:
        """Raises PerfError if the source lacks something that the cost of a step needs, or if it describes
        more than a step of this many tokens can hold.
        """
        placed = self.vision.step_tokens() if self.vision else 0
        if tokens is not None and placed > tokens:
            raise PerfError(
                f"model: image_grids are {placed} tokens, and the step has {tokens}; "
                "give fewer images, or a longer sequence"
            )
        if self.encoder:
            self.encoder.decoder_length()

    def is_moe(self, layer: int) -> bool:
        """Whether this layer's feed-forward block is a mixture; MTP layers are like the decoder's last."""
        return self.experts is not None and self.experts.layers[min(layer, self.layers - 1)]

    def layer_blocks(self, layer: int) -> tuple[str, ...]:
        """Names of this layer's blocks in order; MTP layers follow the decoder's last."""
        if layer >= self.layers and self.mtp_blocks:
            return self.mtp_blocks
        if self.blocks:
            return self.blocks[min(layer, self.layers - 1)]
        attention = "attention" if self.latent is None else "latent_attention"
        return attention, "mixture" if self.is_moe(layer) else "mlp"

    @property
    def core_known(self) -> bool:
        """Whether it is known that sparse attention multiplies what its model FLOPs count (not absorbed)."""
        return self.indexer is None or self.indexer.absorbed is False

    def window_left(self, layer: int) -> int:
        """Keys visible before the query's own in this layer; -1 for all."""
        return self.window.left if self.window and self.window.layers[layer] else -1
