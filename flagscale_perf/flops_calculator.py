"""FLOPs of a training step, exact to the FLOP: `ModelShape` in, one number for every component and phase out.

Three conventions for attention, which do not change anything else: `full` counts every (query, key) pair of a
sequence, s * s; `causal_half` counts s * s / 2 (what Megatron reports, and what our TFLOPS are); `visible`
counts the pairs the mask really leaves, s (s + 1) / 2, less under a sliding window. Packed documents see only
themselves: the sum over their lengths. Model FLOPs are forward and backward (for MFU), hardware FLOPs add
    recomputation and padding of experts (for HFU).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from flagscale_perf.flops.hf import args_from_hf
from flagscale_perf.flops.parts import (
    decoder,
    dense_mlp,
    dense_or_mixture,
    grouped_attention,
    latent_attention,
)
from flagscale_perf.flops.shape import Shape
from flagscale_perf.flops.sources import fields_from_args
from flagscale_perf.flops.tape import EXPERT_ROW, PHASES, TOKEN, Tape, Unit
from flagscale_perf.spine.errors import PerfError

CONVENTIONS = ("full", "causal_half", "visible")


# ---- families: how each is composed, and how it is told from the others ------------------------


def gpt(tape: Tape) -> None:
    """GPT-2, GPT-3 (arXiv:2005.14165): multi-head attention, feed-forward of two matrices, or three with
    quick_geglu.
    """
    decoder(tape, grouped_attention, dense_mlp)


def llama(tape: Tape) -> None:
    """LLaMA 1 to 3 (arXiv:2302.13971, 2407.21783): grouped-query attention, SwiGLU."""
    decoder(tape, grouped_attention, dense_mlp)


def aquila(tape: Tape) -> None:
    """Aquila 2 (arXiv:2408.07410): as LLaMA; the feed-forward width may follow from multiple_of and
    hidden_dim_multiplier.
    """
    decoder(tape, grouped_attention, dense_mlp)


def qwen(tape: Tape) -> None:
    """Qwen 2.5 and 3 (arXiv:2412.15115, 2505.09388): a head width of its own; dense, or fine-grained experts
    with a shared gate.
    """
    decoder(tape, grouped_attention, dense_or_mixture)


def mixtral(tape: Tape) -> None:
    """Mixtral (arXiv:2401.04088) and other mixtures of experts with grouped-query attention."""
    decoder(tape, grouped_attention, dense_or_mixture)


def deepseek(tape: Tape) -> None:
    """DeepSeek-V2 and V3 (arXiv:2405.04434, 2412.19437): latent attention, fine-grained and shared experts,
    further prediction.
    """
    decoder(tape, latent_attention, dense_or_mixture)


class Family(NamedTuple):
    """One model family; adding one is adding a function above and a row below.

    Attributes:
        name: what `ModelShape.family` says.
        forward: its walk over a tape.
        recognises: whether a shape is of it; the first row that says yes wins.
        hf_types: Hugging Face `model_type`s that are of it.
        gated: of a Hugging Face model: its feed-forward blocks have three matrices.
    """

    name: str
    forward: Callable[[Tape], None]
    recognises: Callable[[Shape], bool]
    hf_types: tuple[str, ...]
    gated: bool = True


def _looks_like_qwen(shape: Shape) -> bool:
    return (
        shape.qk_norm
        or (shape.qkv_bias and not shape.linear_bias)
        or bool(shape.experts and shape.experts.shared_gate)
    )


FAMILIES = (
    Family("deepseek", deepseek, lambda s: s.latent is not None, ("deepseek_v2", "deepseek_v3")),
    Family("qwen", qwen, lambda s: s.declared_family == "qwen", ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe")),
    Family("mixtral", mixtral, lambda s: s.experts is not None and not _looks_like_qwen(s), ("mixtral",)),
    Family("qwen", qwen, _looks_like_qwen, ()),
    Family("aquila", aquila, lambda s: s.declared_family == "aquila", ("aquila",)),
    Family("llama", llama, lambda s: s.gated and not s.norm_bias, ("llama", "mistral")),
    Family("gpt", gpt, lambda s: True, ("gpt2",), gated=False),
)


# ---- the shape, and what one unit of it costs --------------------------------------------------


@dataclass(frozen=True)
class ModelShape(Shape):
    """A `Shape` that knows its family and where shapes come from."""

    @classmethod
    def from_args(cls, args: Any) -> ModelShape:
        """From Megatron's or FlagScale's parsed arguments, a namespace or a mapping of their names; only
        read.

        Raises PerfError naming what is missing or contradictory.
        """
        return cls(**fields_from_args(args if isinstance(args, Mapping) else vars(args)))

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> ModelShape:
        """From the contents of a Hugging Face `config.json`. Raises PerfError, also for a `model_type` of no
        known family.
        """
        model_type = config.get("model_type")
        for family in FAMILIES:
            if model_type in family.hf_types:
                return cls.from_args(args_from_hf(config, family.name, family.gated))
        known = ", ".join(sorted(name for family in FAMILIES for name in family.hf_types))
        raise PerfError(
            f"config.json: model_type is {model_type!r}, known are {known}; give Megatron-style arguments instead"
        )

    @property
    def family(self) -> str:
        """Name of the model family."""
        return _family_of(self).name

    def as_dict(self) -> dict[str, Any]:
        """Family and every field, JSON-ready."""
        return {"family": self.family, **asdict(self)}


def _family_of(shape: Shape) -> Family:
    return next(family for family in FAMILIES if family.recognises(shape))


@lru_cache(maxsize=64)
def _walk(shape: Shape) -> Tape:
    tape = Tape(shape)
    _family_of(shape).forward(tape)
    return tape


# ---- a step: how many units it has -------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """What one training step processes, over all ranks.

    Attributes:
        num_sequences: sequences.
        seq_length: tokens of one.
        packed: lengths of the documents in them; None where each sequence is one document.
    """

    num_sequences: int
    seq_length: int
    packed: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Refuses impossible sizes. Raises PerfError."""
        if self.num_sequences < 1 or self.seq_length < 1:
            raise PerfError(
                f"a step of {self.num_sequences} sequences of {self.seq_length} tokens is none; both must be above 0"
            )
        if self.packed is not None and (min(self.packed, default=0) < 1 or sum(self.packed) > self.tokens):
            raise PerfError(
                f"packed lengths must be above 0 and sum up to at most {self.num_sequences} x {self.seq_length} = {self.tokens} tokens; "
                f"they are {len(self.packed)} lengths of {sum(self.packed)} tokens"
            )

    @property
    def tokens(self) -> int:
        """Tokens that pass through every linear layer, padding included."""
        return self.num_sequences * self.seq_length

    def double_pairs(self, convention: str, unit: Unit) -> int:
        """Twice the number of (query, key) pairs, an integer under every convention."""
        if convention == "full":
            return 2 * self.tokens * self.seq_length
        lengths = self.packed
        if convention == "causal_half":
            return (
                self.tokens * self.seq_length
                if lengths is None
                else sum(length * length for length in lengths)
            )
        if lengths is None:
            return self.num_sequences * _double_visible(self.seq_length, unit.window_left)
        return sum(_double_visible(length, unit.window_left) for length in lengths)


def _double_visible(length: int, left: int) -> int:
    # The first queries see all keys up to their own; from then on each sees `left` of them and its own.
    growing = length if left < 0 else min(length, left + 1)
    return growing * (growing + 1) + 2 * (length - growing) * (left + 1)


@dataclass(frozen=True)
class Measure:
    """How many of each unit a step has.

    Attributes:
        shape: of the model.
        step: what is processed.
        convention: of `CONVENTIONS`.
        padded: routed experts' inputs are filled up to their capacity, as the hardware sees them.
    """

    shape: Shape
    step: Step
    convention: str
    padded: bool

    def flops(self, per_unit: int, unit: Unit) -> int:
        """FLOPs of the step where each unit costs `per_unit`."""
        if unit == TOKEN:
            return per_unit * self.step.tokens
        if unit == EXPERT_ROW:
            return per_unit * self._expert_rows()
        return per_unit * self.step.double_pairs(self.convention, unit) // 2

    def total(self, *phases: str) -> int:
        """FLOPs of the step in these phases, all components together."""
        return sum(
            self.flops(per_unit, term.unit)
            for term, per_unit in _walk(self.shape).flops.items()
            if term.phase in phases
        )

    def _expert_rows(self) -> int:
        """Tokens times the experts they go to; capacity as Megatron-Core's `get_capacity` rounds it, in each
        forward pass.
        """
        moe, step = self.shape.experts, self.step
        if moe is None:
            return 0
        if not self.padded or moe.capacity_factor is None:
            return step.tokens * moe.topk
        routed = (
            (self.shape.micro_batch or step.num_sequences) * step.seq_length // self.shape.sequence_shards
        )
        capacity = math.ceil(routed * moe.topk / moe.count * moe.capacity_factor)
        return step.tokens // routed * moe.count * capacity


# ---- what others call --------------------------------------------------------------------------


class Packed(NamedTuple):
    """What a host tells of the packed documents of one step; None for what it does not tell.

    Attributes:
        tokens: real ones, the sum of the documents' lengths; not told, all of the step's count, padding
            included.
        squared_lengths: sum of the squares of their lengths; not told, the tokens count as documents as long
            as a sequence.
    """

    tokens: int | None
    squared_lengths: int | None


class StepFlops(NamedTuple):
    """FLOPs of one step over all GPUs, attention counted causal_half (per document where packed).

    Attributes:
        model_flops: forward and backward.
        hardware_flops: the same with recomputation and padded experts; None if the host's recomputation
            varies, or if experts are padded to a capacity that follows from micro-batches of unknown length.
    """

    model_flops: int
    hardware_flops: int | None


def step_flops(
    shape: ModelShape, num_sequences: int, seq_length: int, packed: Packed | None = None
) -> StepFlops:
    """FLOPs of a step of `num_sequences` sequences of `seq_length` tokens; remembered, so asking again costs
    a look-up.

    Packed steps, of which no two are alike, cost two multiplications instead. Raises PerfError for sizes that
    no step has.
    """
    if packed is None:
        return _step_flops(shape, num_sequences, seq_length)
    tokens = num_sequences * seq_length if packed.tokens is None else packed.tokens
    squared = tokens * seq_length if packed.squared_lengths is None else packed.squared_lengths
    model, hardware = _packed_slopes(shape)
    return StepFlops(
        model.flops(tokens, squared), None if hardware is None else hardware.flops(tokens, squared)
    )


class _Slopes(NamedTuple):
    """FLOPs, attention causal_half, as a linear function of a step's tokens and its documents' squared
    lengths.
    """

    token: int
    squared_length: int

    def flops(self, tokens: int, squared_lengths: int) -> int:
        return self.token * tokens + self.squared_length * squared_lengths


@lru_cache(maxsize=64)
def _packed_slopes(shape: ModelShape) -> tuple[_Slopes, _Slopes | None]:
    """Of model and of hardware FLOPs."""
    knows_rows = shape.experts is None or shape.experts.capacity_factor is None
    return _slopes(shape, "fwd", "bwd"), _slopes(
        shape, *PHASES
    ) if shape.recompute.known and knows_rows else None


def _slopes(shape: ModelShape, *phases: str) -> _Slopes:
    token = squared_length = 0
    for term, per_unit in _walk(shape).flops.items():
        if term.phase not in phases:
            continue
        if term.unit.kind == "pair":
            squared_length += (
                per_unit // 2
            )  # half of the square is seen; a multiply-add is two, so nothing is cut off
        else:
            token += per_unit * (shape.experts.topk if term.unit == EXPERT_ROW and shape.experts else 1)
    return _Slopes(token, squared_length)


@lru_cache(maxsize=256)
def _step_flops(shape: ModelShape, num_sequences: int, seq_length: int) -> StepFlops:
    step = Step(num_sequences, seq_length)
    model = Measure(shape, step, "causal_half", padded=False).total("fwd", "bwd")
    hardware = Measure(shape, step, "causal_half", padded=True).total(*PHASES)
    return StepFlops(model, hardware if shape.recompute.known else None)


@dataclass(frozen=True)
class FlopsTable:
    """FLOPs of one step, component by component; `as_dict` is what `flagscale-perf flops --json` prints.

    Attributes:
        family: of the model.
        batch_size: sequences of the step.
        parameters: of the model, adapters included.
        totals: see `as_dict`; None where not known.
        components: name -> phase -> FLOPs as the hardware does them, attention in full (s * s pairs).
    """

    family: str
    batch_size: int
    parameters: int
    totals: dict[str, int | None]
    components: dict[str, dict[str, int]]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def count(
    shape: ModelShape, num_sequences: int, seq_length: int, packed_seq_lens: Sequence[int] | None = None
) -> FlopsTable:
    """Every component and phase of a step, and its totals under each convention. Raises PerfError for sizes
    that no step has.
    """
    step = Step(num_sequences, seq_length)
    packed = None if packed_seq_lens is None else Step(num_sequences, seq_length, tuple(packed_seq_lens))
    tape, real = _walk(shape), Measure(shape, step, "full", padded=True)
    components: dict[str, dict[str, int]] = {}
    for term, per_unit in tape.flops.items():
        phases = components.setdefault(term.component, dict.fromkeys(PHASES, 0))
        phases[term.phase] += real.flops(per_unit, term.unit)
    return FlopsTable(shape.family, num_sequences, tape.parameters, _totals(shape, step, packed), components)


def _totals(shape: ModelShape, step: Step, packed: Step | None) -> dict[str, int | None]:
    def model(of: Step, convention: str) -> int:
        return Measure(shape, of, convention, padded=False).total("fwd", "bwd")

    def hardware(convention: str, *phases: str) -> int | None:
        return Measure(shape, step, convention, padded=True).total(*phases) if shape.recompute.known else None

    return {
        "model_flops_causal_half": model(step, "causal_half"),
        "model_flops_full_attention": model(step, "full"),
        "model_flops_visible_pairs": model(packed or step, "visible"),
        "model_flops_causal_half_packed": model(packed, "causal_half") if packed else None,
        "recompute_flops_causal_half": hardware("causal_half", "recompute"),
        "recompute_flops_full_attention": hardware("full", "recompute"),
        "hardware_flops_causal_half": hardware("causal_half", *PHASES),
        "hardware_flops_full_attention": hardware("full", *PHASES),
    }
