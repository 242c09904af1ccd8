"""Predicts what a step of a model will need: peak memory, FLOPs, bytes, and the least time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from flagscale_perf.device.peaks import find_peak, is_known, known_names, near_names
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.errors import PerfError

_GB = 10**9
_SIZE = re.compile(r"(\d+)\s?gb")


@dataclass(frozen=True)
class MemoryRow:
    """One chip, or several with the same memory.

    Attributes:
        pattern: regular expression of the driver's whole name for it, in any case.
        gb_per_s: decimal, both directions together.
        gb: size of its memory; None where that is left to the chip's name, which may not tell it.
        source: where the figures are from.
    """

    pattern: str
    gb_per_s: float
    gb: int | None
    source: str


_VOLTA, _AMPERE, _HOPPER, _BLACKWELL = (
    f"NVIDIA's {name} datasheet" for name in ("Volta", "A100", "Hopper", "Blackwell")
)
# Names are matched whole, as in `device.peaks`. A chip whose figures its maker has not published has no row.
ROWS = (
    MemoryRow(r"(tesla|nvidia) v100-(sxm2|pcie)-\d+gb", 900, None, _VOLTA),
    MemoryRow(r"(tesla|nvidia) v100s-pcie-\d+gb", 1134, None, _VOLTA),
    MemoryRow(r"nvidia a100-(sxm4|sxm|pcie|pg509)-40gb", 1555, None, _AMPERE),
    MemoryRow(r"nvidia a[18]00-(sxm4|sxm)-80gb", 2039, None, _AMPERE),
    MemoryRow(r"nvidia a[18]00 80gb pcie", 1935, None, _AMPERE),
    MemoryRow(r"nvidia h100 80gb hbm3", 3350, None, _HOPPER),
    MemoryRow(r"nvidia h100 pcie", 2000, 80, _HOPPER),
    MemoryRow(r"nvidia h100 nvl", 3900, 94, _HOPPER),
    MemoryRow(r"nvidia h200", 4800, 141, _HOPPER),
    MemoryRow(r"nvidia g?b200", 8000, None, _BLACKWELL + "; which size depends on the system"),
    MemoryRow(r"nvidia l40s", 864, 48, "NVIDIA's L40S datasheet"),
    MemoryRow(r"nvidia geforce rtx 4090", 1008, 24, "NVIDIA's page of the card"),
)


def memory_of(device_name: str) -> MemoryRow | None:
    """The row of the device with this driver name, with the size that the name says; None if unknown."""
    name = " ".join(device_name.lower().split())
    row, said = next((row for row in ROWS if re.fullmatch(row.pattern, name)), None), _SIZE.search(name)
    return replace(row, gb=row.gb or int(said[1])) if row and said else row


def whole_name(device: str) -> str:
    """The driver's full name for a part of it, such as "H200". Raises PerfError if none or several match."""
    if is_known(device):
        return device
    words = set(re.split(r"[^a-z0-9]+", device.lower()))
    meant = [name for name in known_names() if words <= set(re.split(r"[^a-z0-9]+", name.lower()))]
    if len(meant) == 1:
        return meant[0]
    names = ", ".join(f"{name!r}" for name in meant or near_names(device) or known_names())
    problem = "several are called so" if meant else "it is not in the table"
    raise PerfError(f"--device {device!r}: {problem}; write one of {names}")


FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


class Work(NamedTuple):
    """One operator of one module in one part of a step, over all its runs.

    Attributes:
        part: `FORWARD`, `BACKWARD` or `OPTIMIZER`.
        module: path of it, "" outside of any.
        op: name of the operator.
        flops: FLOPs of operators with a formula; 0 for all others.
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
        name: the chip's name.
        flop_per_s: dense peak in the step's data type.
        bytes_per_s: bandwidth of its memory.
        memory_bytes: size of its memory.
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
    """The device that this name means, for a type of `DTYPES`. Raises PerfError if none or several do."""
    name = whole_name(device)
    peak, memory = find_peak(name, dtype), memory_of(name)
    about = "its memory is not known" if memory is None else f"memory: {memory.source}"
    return Card(
        name=name,
        flop_per_s=peak.flop_per_s,
        bytes_per_s=None if memory is None else memory.gb_per_s * _GB,
        memory_bytes=None if memory is None or memory.gb is None else memory.gb * _GB,
        source=f"{peak.source}; {about}",
    )


@dataclass(frozen=True)
class Setup:
    """The step to predict.

    Attributes:
        model: the model's name, or where its configuration is.
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
        parameter_bytes, gradient_bytes, optimizer_bytes: bytes held for them, each at its own peak.
        at_peak: bytes held at the peak, by their purpose.
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
