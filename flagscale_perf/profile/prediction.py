"""Predicts what a step of a model will need: peak memory, FLOPs and bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from flagscale_perf.device.peaks import is_known, known_names, near_names
from flagscale_perf.spine.errors import PerfError

_GB = 10**9
_SIZE = re.compile(r"(\d+)\s?gb")


# Decimal GB of chips whose driver's name does not say it. One with several sizes has no row.
_GB_OF = {
    "nvidia h100 pcie": 80,
    "nvidia h100 nvl": 94,
    "nvidia h200": 141,
    "nvidia l40s": 48,
    "nvidia geforce rtx 4090": 24,
}


def memory_gb(device_name: str) -> int | None:
    """The memory of the device with this driver name, by that name or the table; None if unknown."""
    name = " ".join(device_name.lower().split())
    said = _SIZE.search(name)
    return int(said[1]) if said else _GB_OF.get(name)


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


class Card(NamedTuple):
    """A device that a step may fit on.

    Attributes:
        name: the chip's name.
        memory_bytes: size of its memory; None if unknown.
    """

    name: str
    memory_bytes: int | None


def card_of(device: str) -> Card:
    """The device that this name means. Raises PerfError if none or several do."""
    name = whole_name(device)
    gb = memory_gb(name)
    return Card(name, None if gb is None else gb * _GB)


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
            made["card"] = card._asdict()
        made["work"] = [one._asdict() for one in self.work]
        return made
