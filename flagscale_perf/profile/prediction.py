"""What a step of a model will need, before it runs: peak memory, FLOPs, bytes, and the least time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from flagscale_perf.device.memory_peaks import memory_of, whole_name
from flagscale_perf.device.peaks import find_peak
from flagscale_perf.spine.clock import NS_PER_S

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


class Work(NamedTuple):
    """One operator of one module in one part of a step, over all its runs.

    Attributes:
        part: `FORWARD`, `BACKWARD` or `OPTIMIZER`.
        module: path of it, "" outside of any.
        op: name of the operator.
        flops: of what has a formula; 0 for all else.
        moved_bytes: what it must at least read and write.
    """

    part: str
    module: str
    op: str
    runs: int
    flops: int
    moved_bytes: int


@dataclass(frozen=True)
class Card:
    """A device as its vendor specifies it. None if unknown.

    Attributes:
        name: of the chip.
        flop_per_s: dense peak in the step's data type.
        bytes_per_s: of its memory.
        memory_bytes: that it has.
        source: of these figures, or why one is not known.
    """

    name: str
    flop_per_s: float | None
    bytes_per_s: float | None
    memory_bytes: int | None
    source: str

    def floor_ns(self, flops: float, moved_bytes: float) -> float | None:
        """The least time for this work; None if a roof is unknown."""
        if self.flop_per_s is None or self.bytes_per_s is None:
            return None
        return max(flops / self.flop_per_s, moved_bytes / self.bytes_per_s) * NS_PER_S


def card_of(device: str, dtype: str) -> Card:
    """The device of that name, or of an unambiguous part of it. Raises PerfError if there is none. `dtype`:
    one of `DTYPES`.
    """
    name = whole_name(device)
    peak, memory = find_peak(name, dtype), memory_of(name)
    about = "its memory is not known" if memory is None else f"memory: {memory.source}"
    return Card(
        name=name,
        flop_per_s=peak.flop_per_s,
        bytes_per_s=None if memory is None else memory.bytes_per_s,
        memory_bytes=None if memory is None else memory.size_bytes,
        source=f"{peak.source}; {about}",
    )


@dataclass(frozen=True)
class Setup:
    """Which step is predicted.

    Attributes:
        model: what the model is called, or where its configuration is.
        batch: sequences; `tokens` of each.
        dtype: of parameters, gradients, optimizer state and activations.
        optimizer: "adamw", or "none" for forward and backward alone.
        is_inference: a forward pass without gradients, its keys and values kept.
        is_foreach: the optimizer's arithmetic is done for all parameters at once, as on a GPU.
    """

    model: str
    batch: int
    tokens: int
    dtype: str
    optimizer: str = "adamw"
    is_inference: bool = False
    is_foreach: bool = False


@dataclass(frozen=True)
class Prediction:
    """Prediction for a step after the first: the optimizer has its state.

    Attributes:
        parameters: how many numbers the model has.
        parameter_bytes, gradient_bytes, optimizer_bytes: that are held for them, each at its own most.
        at_peak: bytes at the moment of the most, by what they are held for.
        work: all operators.
        flops_calculator: model FLOPs of the step by `flops_calculator`, attention in full; None for a model
            that it does not know.
    """

    setup: Setup
    parameters: int
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    at_peak: Mapping[str, int]
    work: Sequence[Work]
    flops_calculator: int | None = None

    @property
    def peak_bytes(self) -> int:
        """The most bytes held at any moment."""
        return sum(self.at_peak.values())

    @property
    def flops(self) -> int:
        """FLOPs of the whole step."""
        return sum(one.flops for one in self.work)

    def as_dict(self, card: Card | None = None) -> dict[str, Any]:
        """Its content as JSON-ready data."""
        made: dict[str, Any] = {
            "setup": asdict(self.setup),
            "parameters": self.parameters,
            "memory_bytes": {
                "peak": self.peak_bytes,
                "at_peak": dict(self.at_peak),
                "parameters": self.parameter_bytes,
                "gradients": self.gradient_bytes,
                "optimizer": self.optimizer_bytes,
            },
            "flops": {
                "step": self.flops,
                **{
                    part: sum(one.flops for one in self.work if one.part == part)
                    for part in dict.fromkeys(one.part for one in self.work)
                },
                "flops_calculator": self.flops_calculator,
            },
        }
        if card is not None:
            made["card"] = asdict(card)
        made["work"] = [
            one._asdict() | ({} if card is None else {"floor_ns": card.floor_ns(one.flops, one.moved_bytes)})
            for one in self.work
        ]
        return made
