"""FLOPs of a training step, exact to the FLOP: `ModelShape` in, one number for every component and phase out.

Three conventions for attention; they affect nothing else. `full` counts every (query, key) pair of a
sequence, s * s. `causal_half` counts s * s / 2, as Megatron reports and as our TFLOPS use. `visible` counts
the pairs that the mask leaves: s (s + 1) / 2, fewer under a sliding window. A packed document attends to
itself only: the sum over the documents' lengths. Model FLOPs are forward and backward (for MFU); hardware
FLOPs add recomputation and the padding of experts (for HFU).

The core of a recurrent layer has three forms: `recurrent` multiplies what the recurrence itself does, token
by token, and is model FLOPs; `chunked` what kernels do chunk by chunk, and is hardware FLOPs; `megatron` what
Megatron-LM reports, for comparison only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from flagscale_perf.flops.families.decoder import decoder
from flagscale_perf.flops.families.encoder import bert, encoder_decoder
from flagscale_perf.flops.families.vision import vision_language
from flagscale_perf.flops.hf import OF_TRAINING, args_from_hf, refuse_untrained
from flagscale_perf.flops.hf_towers import (
    args_from_bert,
    args_from_llava,
    args_from_qwen3_vl,
    args_from_qwen_vl,
    args_from_t5,
)
from flagscale_perf.flops.shape import Shape
from flagscale_perf.flops.sources import fields_from_args
from flagscale_perf.flops.step import Measure, Step
from flagscale_perf.flops.tape import CORE_FORMS, PHASES, Tape
from flagscale_perf.flops.units import EXPERT_ROW
from flagscale_perf.spine.errors import PerfError

CONVENTIONS = ("full", "causal_half", "visible")


# ---- families: how each is recognised ----------------------------------------------------------


class Family(NamedTuple):
    """One model family. What a model consists of, its shape tells block by block.

    Attributes:
        name: what `ModelShape.family` says.
        recognises: whether a shape belongs to it; the first row of `FAMILIES` that says yes wins.
        hf_types: its Hugging Face `model_type`s.
        gated: whether the feed-forward blocks of its Hugging Face models have three matrices.
        forward: writes its forward pass on a tape.
        from_hf: reads a `config.json` of these, given with name and gated, into Megatron's argument names.
    """

    name: str
    recognises: Callable[[Shape], bool]
    hf_types: tuple[str, ...]
    gated: bool = True
    forward: Callable[[Tape], None] = decoder
    from_hf: Callable[[Mapping[str, Any], str, bool], dict[str, Any]] = args_from_hf


def _looks_like_qwen(shape: Shape) -> bool:
    return (
        shape.qk_norm
        or (shape.qkv_bias and not (shape.linear_bias or shape.out_bias))
        or bool(shape.experts and shape.experts.shared_gate)
    )


FAMILIES = (
    Family("qwen3_5", lambda s: bool(s.vision and s.delta), (), forward=vision_language),
    Family(
        "qwen3_vl",
        lambda s: bool(s.vision and s.vision.merge > 1 and not s.vision.window),
        ("qwen3_vl", "qwen3_vl_moe"),
        forward=vision_language,
        from_hf=args_from_qwen3_vl,
    ),
    Family(
        "qwen2_5_vl",
        lambda s: bool(s.vision and s.vision.merge > 1),
        ("qwen2_5_vl",),
        forward=vision_language,
        from_hf=args_from_qwen_vl,
    ),
    Family(
        "llava", lambda s: s.vision is not None, ("llava",), forward=vision_language, from_hf=args_from_llava
    ),
    Family("t5", lambda s: s.encoder is not None, ("t5",), forward=encoder_decoder, from_hf=args_from_t5),
    Family("bert", lambda s: s.bert is not None, ("bert",), False, bert, args_from_bert),
    Family("mamba", lambda s: set(s.blocks) == {("mamba",)}, ("mamba2",), gated=False),
    Family("hybrid", lambda s: s.mamba is not None, ("bamba", "granitemoehybrid")),
    Family("hybrid", lambda s: s.mamba is not None, ("nemotron_h",), gated=False),
    Family("qwen_next", lambda s: s.delta is not None, ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")),
    Family("kimi_linear", lambda s: s.kda is not None, ("kimi_linear",)),
    Family("deepseek_v32", lambda s: s.indexer is not None, ("deepseek_v32",)),
    Family("rwkv", lambda s: s.rwkv is not None, ("rwkv",), gated=False),
    Family("deepseek", lambda s: s.latent is not None, ("deepseek_v2", "deepseek_v3")),
    Family("qwen", lambda s: s.declared_family == "qwen", ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe")),
    Family("mixtral", lambda s: s.experts is not None and not _looks_like_qwen(s), ("mixtral",)),
    Family("qwen", _looks_like_qwen, ()),
    Family("aquila", lambda s: s.declared_family == "aquila", ("aquila",)),
    Family("llama", lambda s: s.gated and not s.norm_bias, ("llama", "mistral")),
    Family("gpt", lambda s: True, ("gpt2",), gated=False),
)


# ---- the shape, and what one unit of it costs --------------------------------------------------


@dataclass(frozen=True)
class ModelShape(Shape):
    """A `Shape` with its family, and constructors for the sources of shapes."""

    @classmethod
    def from_args(cls, args: Any) -> ModelShape:
        """The shape that Megatron's or FlagScale's arguments describe: a namespace or a mapping.

        Raises PerfError, naming what is missing or contradictory.
        """
        return cls(**fields_from_args(args if isinstance(args, Mapping) else vars(args)))

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> ModelShape:
        """The shape that a Hugging Face `config.json` describes. Raises PerfError, also for an unknown model.

        It may say more than transformers reads: what of the model is trained and recomputed, and of which
        step, in Megatron's argument names.
        """
        return cls.from_args(args_from_config(config))

    @property
    def family(self) -> str:
        """Name of the model family."""
        return _family_of(self).name

    @property
    def parameters(self) -> int:
        """Weights of the model, biases, norms and adapters included."""
        return _walk(self).parameters

    @property
    def convention(self) -> str:
        """How a live run counts the model: attention, and the cores of recurrent layers and dropped tokens if
        there are any.
        """
        recurrent = (
            ", recurrent cores (chunked in hardware FLOPs)" if self.mamba or self.delta or self.kda else ""
        )
        return f"causal_half{recurrent}{', dropped tokens included' if self.drops else ''}"

    @property
    def drops(self) -> bool:
        """Whether tokens may be dropped; how many is not known, and all of them are counted."""
        return self.experts is not None and self.experts.drops

    @property
    def hardware_unknown(self) -> str:
        """Why no step's hardware FLOPs are known; "" where they are."""
        if not self.recompute.known:
            modules = ", ".join(self.recompute.modules)
            varies = "recomputation varies by pipeline stage and micro-batch"
            return f"not all of recompute_modules is counted: {modules}" if modules else varies
        if not self.core_known:
            return "Megatron-Core since 0.19 absorbs up-projections into the core of sparse attention"
        return "" if _walk(self, "chunked").known else "the chunks of a recurrent core are not counted"

    def as_dict(self) -> dict[str, Any]:
        """Family and every field, as values that JSON has."""
        return {"family": self.family, **asdict(self)}


def args_from_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a Hugging Face `config.json` says, in Megatron's argument names; see `ModelShape.from_hf`."""
    refuse_untrained(config)
    model_type = config.get("model_type")
    for family in FAMILIES:
        if model_type in family.hf_types:
            args = family.from_hf(config, family.name, family.gated)
            return args | {name: config[name] for name in OF_TRAINING if name in config}
    known = ", ".join(sorted(name for family in FAMILIES for name in family.hf_types))
    raise PerfError(
        f"config.json: model_type is {model_type!r}, known are {known}; give Megatron-style arguments instead"
    )


def _family_of(shape: Shape) -> Family:
    return next(family for family in FAMILIES if family.recognises(shape))


@lru_cache(maxsize=64)
def _walk(shape: Shape, core_form: str = "recurrent") -> Tape:
    tape = Tape(shape, core_form)
    _family_of(shape).forward(tape)
    return tape


# ---- FLOPs of a step ---------------------------------------------------------------------------


class Packed(NamedTuple):
    """The packed documents of one step, as far as they are known.

    Attributes:
        tokens: sum of the documents' lengths; None: every token of the step counts, padding included.
        squared_lengths: sum of the squares of their lengths; None: documents count as long as a sequence.
    """

    tokens: int | None
    squared_lengths: int | None


class StepFlops(NamedTuple):
    """FLOPs of one step over all GPUs, attention counted causal_half (per document where packed).

    Attributes:
        model_flops: forward and backward, the cores of recurrent layers by their recurrence; None where the
            sums of packed documents do not say it.
        hardware_flops: recomputation and padding of experts added, those cores chunk by chunk; None where the
            recomputation is not known, those chunks are not counted, or the capacity of experts follows
            from micro-batches of unknown length.
    """

    model_flops: int | None
    hardware_flops: int | None


def step_flops(
    shape: ModelShape, num_sequences: int, seq_length: int, packed: Packed | None = None
) -> StepFlops:
    """FLOPs of a step. Raises PerfError for impossible sizes.

    Cheap enough for every step: sizes seen before cost a look-up, packed steps (no two are alike) a few
    multiplications.
    """
    if packed is None:
        return _step_flops(shape, num_sequences, seq_length)
    tokens = num_sequences * seq_length if packed.tokens is None else packed.tokens
    squared = tokens * seq_length if packed.squared_lengths is None else packed.squared_lengths
    model, hardware = _packed_slopes(shape)
    return StepFlops(model and model.flops(tokens, squared), hardware and hardware.flops(tokens, squared))


class _Slopes(NamedTuple):
    """FLOPs (attention: causal_half) as a linear function of tokens and squared lengths of documents."""

    token: int
    squared_length: int

    def flops(self, tokens: int, squared_lengths: int) -> int:
        """FLOPs for this many tokens and this sum of the documents' squared lengths."""
        return self.token * tokens + self.squared_length * squared_lengths


@lru_cache(maxsize=64)
def _packed_slopes(shape: ModelShape) -> tuple[_Slopes | None, _Slopes | None]:
    # Of model FLOPs and of hardware FLOPs.
    has_capacity = shape.experts is not None and shape.experts.capacity_factor is not None
    is_known = not (shape.hardware_unknown or has_capacity)
    model = _slopes(_walk(shape), "fwd", "bwd")
    return model, _slopes(_walk(shape, "chunked"), *PHASES) if is_known else None


def work_flops(shape: ModelShape, stages: int = 1) -> dict[str, float] | None:
    """Model FLOPs for one unit of each kind of a rank's work, by its name in `training.work.WORK`: the whole
    model's for a token and for a squared length, without the routed experts; None where these do not say it.

    A token that an expert of one layer receives costs `stages` times as much: where a stage of the pipeline
    has a part of the layers, its experts weigh as much beside the whole model's tokens as beside its own.
    """
    model, _ = _packed_slopes(shape)
    if model is None:
        return None
    costs = _walk(shape).flops.items()
    of_row = sum(cost for term, cost in costs if term.unit == EXPERT_ROW and term.phase in ("fwd", "bwd"))
    found: dict[str, float] = {"tokens": model.token, "squared_lengths": model.squared_length}
    if shape.experts and of_row:
        every = range(shape.layers + shape.mtp_layers)
        found["tokens"] -= shape.experts.topk * of_row
        found["expert_tokens"] = (
            stages * of_row / sum("mixture" in shape.layer_blocks(layer) for layer in every)
        )
    return found


def _slopes(tape: Tape, *phases: str) -> _Slopes | None:
    token = squared_length = 0
    for term, per_unit in tape.flops.items():
        if term.phase not in phases:
            continue
        slope = term.unit.slope(tape.shape)
        if slope is None:
            return None
        # A multiply-add is 2 FLOPs, so per_unit is even: nothing is cut off.
        token, squared_length = token + per_unit * slope[0] // 2, squared_length + per_unit * slope[1] // 2
    return _Slopes(token, squared_length)


@lru_cache(maxsize=256)
def _step_flops(shape: ModelShape, num_sequences: int, seq_length: int) -> StepFlops:
    step = Step(num_sequences, seq_length)
    model = _walk(shape).total(Measure(shape, step, "causal_half", padded=False), "fwd", "bwd")
    hardware = _walk(shape, "chunked").total(Measure(shape, step, "causal_half", padded=True), *PHASES)
    return StepFlops(model, None if shape.hardware_unknown else hardware)


@dataclass(frozen=True)
class FlopsTable:
    """FLOPs of one step, component by component; `as_dict` is what `flagscale-perf flops --json` prints.

    Attributes:
        family: of the model.
        batch_size: sequences of the step.
        parameters: of the model, adapters included.
        totals: by convention; None where not known.
        components: name -> "fwd", "bwd", "recompute" and "padding" -> FLOPs, attention in full (s * s pairs).
            Over all components, "fwd" and "bwd" add up to the model FLOPs, all four to the hardware FLOPs.
            "padding" is what forward and backward multiply for nothing where the inputs of experts are filled
            up to their capacity; it is negative where the capacity is too small and tokens are dropped.
        core: which products count for the core of a recurrent layer here, of `CORE_FORMS`.
        totals_by_core: the totals in every form.
    """

    family: str
    batch_size: int
    parameters: int
    totals: dict[str, int | None]
    components: dict[str, dict[str, int]]
    core: str
    totals_by_core: dict[str, dict[str, int | None]]

    def as_dict(self) -> dict[str, Any]:
        """The table as plain values, ready for JSON."""
        return asdict(self)


def count(
    shape: ModelShape,
    num_sequences: int,
    seq_length: int,
    packed_seq_lens: Sequence[int] | None = None,
    core: str = "recurrent",
) -> FlopsTable:
    """Every component of a step, and its totals by convention. Raises PerfError for impossible sizes.

    `core`: the form of recurrent layers that the components are in, of `CORE_FORMS`.
    """
    if core not in CORE_FORMS:
        raise PerfError(f"core is {core!r}; write one of {', '.join(CORE_FORMS)}")
    step = Step(num_sequences, seq_length)
    shape.check_step(step.tokens)
    packed = None if packed_seq_lens is None else Step(num_sequences, seq_length, tuple(packed_seq_lens))
    tape = _walk(shape, core)
    if not tape.known:
        raise PerfError(f"core {core}: there is no such formula for a block of this model; take recurrent")
    components = _components(tape, step)
    totals = {form: _totals(_walk(shape, form), step, packed) for form in CORE_FORMS}
    return FlopsTable(shape.family, num_sequences, tape.parameters, totals[core], components, core, totals)


def _components(tape: Tape, step: Step) -> dict[str, dict[str, int]]:
    model, hardware = (Measure(tape.shape, step, "full", padded) for padded in (False, True))
    components: dict[str, dict[str, int]] = {}
    for term, per_unit in tape.flops.items():
        parts = components.setdefault(term.component, dict.fromkeys((*PHASES, "padding"), 0))
        done = term.in_step(hardware, per_unit)
        if term.phase == "recompute":
            parts["recompute"] += done
        else:
            needed = term.in_step(model, per_unit)
            parts[term.phase] += needed
            parts["padding"] += done - needed
    return components


def _totals(tape: Tape, step: Step, packed: Step | None) -> dict[str, int | None]:
    def model(of: Step, convention: str) -> int | None:
        measure = Measure(tape.shape, of, convention, padded=False)
        return tape.total(measure, "fwd", "bwd") if tape.known else None

    def hardware(convention: str, *phases: str) -> int | None:
        is_known = tape.known and tape.shape.recompute.known and tape.shape.core_known
        measure = Measure(tape.shape, step, convention, padded=True)
        return tape.total(measure, *phases) if is_known else None

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
