"""How much memory a training needs on the ranks of one machine, from its shape, before it is started.

    state        weights, gradients and the optimizer's state, which all ranks of a replica share
    activations  what the forward pass keeps for the backward pass, of as many micro batches as a stage has
                 on their way, and the logits with their loss
    exchange     copies that a collective on a CPU makes of what it divides or gathers
    processes    the interpreter and its libraries, once a rank
    index        the order in which the samples of the whole training are read, built once a machine

Activations are those of unfused kernels, which is what runs on a CPU: attention scores are kept. With fused
kernels they are less, so for a GPU only `state_bytes` is a lower bound. Means over the ranks: the first and
the last pipeline stage have more than others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.shape import Shape
from flagscale_perf.spine.errors import PerfError

PROCESS_BYTES = 500_000_000  # torch and Megatron, measured without a model
_INDEX_BYTES = 12  # of a sample: its document and offset, and its place in the shuffled order, 32 bits each
_KNOWN_LAYERS = set(product(("attention", "latent_attention"), ("mlp", "mixture")))


@dataclass(frozen=True)
class Layout:
    """How a model is distributed over ranks, and what a rank computes at once.

    Attributes:
        local_ranks, ranks: on this machine, and of the job.
        tensor, pipeline, context, expert: parallel sizes.
        sequence_parallel: what tensor parallelism leaves whole is divided, too.
        micro_batch: sequences of a forward pass.
        micro_batches: of a step, for each replica.
        seq_length: tokens of a sequence.
        samples: of the whole training; 0 where that is not said.
        weight_bytes, gradient_bytes: of one parameter.
        optimizer_bytes: of one parameter: the copy in fp32, where the weights are shorter, and the moments.
        shards_optimizer: over the replicas.
        long_softmax: attention's softmax is in fp32, whatever the weights are.
        attention_dropout, hidden_dropout: whether there is any.
    """

    local_ranks: int
    ranks: int
    tensor: int
    pipeline: int
    context: int
    expert: int
    sequence_parallel: bool
    micro_batch: int
    micro_batches: int
    seq_length: int
    samples: int
    weight_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    shards_optimizer: bool
    long_softmax: bool
    attention_dropout: bool
    hidden_dropout: bool

    @classmethod
    def from_args(cls, given: Mapping[str, Any], local_ranks: int, ranks: int) -> Layout:
        """The layout in Megatron's arguments. Raises PerfError for sizes that are missing or do not fit."""
        args = Arguments(given)
        tensor, pipeline, context = (
            args.integer(f"{name}_parallel_size", 1) for name in ("tensor_model", "pipeline_model", "context")
        )
        if ranks % (tensor * pipeline * context):
            raise PerfError(
                f"{ranks} ranks cannot be divided by tensor x pipeline x context parallel sizes"
                f" ({tensor} x {pipeline} x {context}); start a multiple of {tensor * pipeline * context}"
            )
        micro_batch = args.integer("micro_batch_size")
        replicas = ranks // (tensor * pipeline * context)
        batch = args.integer("global_batch_size", micro_batch * replicas)
        is_half = args.flag("fp16") or args.flag("bf16")
        long_gradients = args.flag("accumulate_allreduce_grads_in_fp32") or not args.flag("fp16")
        moments = 4 if args.get("optimizer") == "sgd" else 8
        return cls(
            local_ranks=local_ranks,
            ranks=ranks,
            tensor=tensor,
            pipeline=pipeline,
            context=context,
            expert=args.integer("expert_model_parallel_size", 1),
            sequence_parallel=args.flag("sequence_parallel"),
            micro_batch=micro_batch,
            micro_batches=max(1, batch // (micro_batch * replicas)),
            seq_length=args.integer("seq_length"),
            samples=args.optional("train_samples") or batch * (args.optional("train_iters") or 0),
            weight_bytes=2 if is_half else 4,
            gradient_bytes=4 if long_gradients else 2,
            optimizer_bytes=moments + 4 * is_half,
            shards_optimizer=args.flag("use_distributed_optimizer"),
            long_softmax=is_half and args.flag("attention_softmax_in_fp32"),
            attention_dropout=args.get("attention_dropout") not in (0, "0", "0.0"),
            hidden_dropout=args.get("hidden_dropout") not in (0, "0", "0.0"),
        )


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes of one rank, averaged over the job's ranks, and of the machine.

    Attributes:
        ranks: on this machine.
        index_bytes: of the machine.
        state_bytes, activation_bytes, exchange_bytes, process_bytes: see above.
    """

    ranks: int
    index_bytes: int
    state_bytes: int
    activation_bytes: int
    exchange_bytes: int
    process_bytes: int

    @property
    def rank_bytes(self) -> int:
        """All that one rank needs, its process included."""
        return self.state_bytes + self.activation_bytes + self.exchange_bytes + self.process_bytes

    @property
    def total_bytes(self) -> int:
        """Bytes of the machine with all its ranks."""
        return self.ranks * self.rank_bytes + self.index_bytes


def memory_need(shape: Shape, parameters: int, layout: Layout) -> MemoryNeed:
    """The memory that a training of this shape with this many parameters needs. Raises PerfError for a model
    with blocks whose activations are unknown.
    """
    _check_known(shape)
    experts, divided = min(_expert_parameters(shape), parameters), layout.tensor * layout.pipeline
    groups = ((parameters - experts, divided), (experts, divided * layout.expert))
    return MemoryNeed(
        layout.local_ranks,
        layout.samples * _INDEX_BYTES,
        sum(_state(held, layout, over) for held, over in groups),
        _activations(shape, layout),
        sum(_exchange(held, layout, over) for held, over in groups),
        PROCESS_BYTES,
    )


def _check_known(shape: Shape) -> None:
    for field, what in (("vision", "a vision tower"), ("encoder", "an encoder"), ("bert", "BERT")):
        if getattr(shape, field) is not None:
            raise PerfError(f"what {what} keeps for the backward pass is not known")
    if shape.streams:
        raise PerfError("what several residual streams keep for the backward pass is not known")
    for layer in shape.blocks:
        if layer not in _KNOWN_LAYERS:
            raise PerfError(f"what a layer of {' and '.join(layer)} keeps for the backward pass is not known")


def _state(parameters: int, layout: Layout, divided: int) -> int:
    """Bytes of one rank, where each copy of the parameters is sharded over this many ranks."""
    held = parameters / divided
    copies = max(1, layout.ranks // divided) if layout.shards_optimizer else 1
    return int(held * (layout.weight_bytes + layout.gradient_bytes + layout.optimizer_bytes / copies))


def _exchange(parameters: int, layout: Layout, divided: int) -> int:
    """Bytes for the gradients that are sharded over the copies of a parameter, and for the weights gathered
    from them; nothing is copied if each rank keeps the whole optimizer.
    """
    is_exchanged = layout.shards_optimizer and layout.ranks > divided
    return int(is_exchanged * parameters / divided * (layout.weight_bytes + layout.gradient_bytes))


def _expert_parameters(shape: Shape) -> int:
    moe = shape.experts
    if moe is None:
        return 0
    matrices = 3 if shape.gated else 2
    return sum(moe.layers) * moe.count * matrices * (moe.latent_size or shape.hidden) * moe.ffn_hidden_size


def _activations(shape: Shape, layout: Layout) -> int:
    tokens = layout.micro_batch * layout.seq_length / layout.context
    layers = [_layer_bytes(shape, layout, layer) for layer in range(shape.layers)]
    whole = shape.recompute.full_layers or (False,) * shape.layers
    kept_input = layout.weight_bytes * shape.hidden
    kept = sum(kept_input if again else size for size, again in zip(layers, whole, strict=True))
    again = max((size for size, repeated in zip(layers, whole, strict=True) if repeated), default=0.0)
    # the backward pass of one layer: gradients of the softmax's output and of its input
    again += 2 * _score_bytes(layout) * shape.heads * layout.seq_length / layout.tensor
    # stage p of P has P - p micro batches on their way, so a rank's mean over its L / P layers
    stages = range(1, layout.pipeline + 1)
    in_flight = sum(min(stage, layout.micro_batches) for stage in stages) / layout.pipeline
    logits = _logit_bytes(shape, layout) / layout.pipeline
    return int(tokens * (kept * in_flight / layout.pipeline + again + logits))


def _layer_bytes(shape: Shape, layout: Layout, layer: int) -> float:
    width, divided = layout.weight_bytes, layout.tensor
    queries, keys = shape.heads * shape.head_dim, shape.kv_groups * shape.head_dim
    if shape.latent is not None:
        queries, keys = shape.heads * shape.latent.q_dim, shape.heads * shape.latent.v_head_dim
    # norms: their inputs in fp32 and their outputs; then the input of each residual connection
    whole = shape.hidden * (2 * (8 + width) + 2 * layout.hidden_dropout * (1 + width))
    # projections, rotary copies, keys and values repeated for each head, context
    attention = width * (queries + 2 * keys + 4 * queries)
    if "core_attn" not in shape.recompute.modules:
        attention += _score_bytes(layout) * shape.heads * layout.seq_length
    feed_forward = width * _feed_forward_width(shape, layer)
    return whole / (divided if layout.sequence_parallel else 1) + (attention + feed_forward) / divided


def _score_bytes(layout: Layout) -> int:
    """Bytes for one query and key: the softmax and, if that is in fp32, its copy in the weights' type; with
    dropout its mask and its result.
    """
    width = layout.weight_bytes
    return width + 4 * layout.long_softmax + layout.attention_dropout * (1 + width)


def _feed_forward_width(shape: Shape, layer: int) -> int:
    """Numbers kept per token between the two projections: both halves of a gate, the activation of one, and
    their product.
    """
    each = 4 if shape.gated else 2
    moe = shape.experts
    if moe is None or not shape.is_moe(layer):
        return each * shape.ffn
    routed = moe.topk * (each * moe.ffn_hidden_size + 3 * shape.hidden)
    return routed + each * moe.shared_ffn_hidden_size + moe.count


def _logit_bytes(shape: Shape, layout: Layout) -> float:
    """Per token: the logits in fp32, which become their gradient in place, and working memory; with shorter
    weights also the logits and their gradient in that type.
    """
    copies = 2 * layout.weight_bytes if layout.weight_bytes < 4 else 2
    return shape.vocab / layout.tensor * (4 + copies)
