"""The cases to measure: sizes, and the arms that they are measured on."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flagscale_perf.bench.names import SINGLE
from flagscale_perf.bench.serving.model import Model
from flagscale_perf.spine.errors import PerfError

SEED = 1234


class Case(NamedTuple):
    """A batch: `batch` concurrent requests with prompts of `seq` tokens, each generating `output` tokens."""

    batch: int
    seq: int
    output: int

    @property
    def tokens(self) -> int:
        """Length of a finished request."""
        return self.seq + self.output

    @property
    def words(self) -> str:
        """Batch and lengths as text, for messages."""
        return f"batch {self.batch}, {self.seq} + {self.output} tokens"


@dataclass(frozen=True)
class Arm:
    """A way to run the model.

    Attributes:
        name: `SINGLE`, "TP 2", "PP 2" ...
        tensor, pipeline: over how many devices.
    """

    name: str
    tensor: int = 1
    pipeline: int = 1

    @property
    def devices(self) -> int:
        """Number of devices that it needs."""
        return self.tensor * self.pipeline

    @property
    def file(self) -> str:
        """The name as part of a file's."""
        return self.name.replace(" ", "_").lower()

    @property
    def case(self) -> dict[str, Any]:
        """The case as a point has it."""
        return {"arm": self.name, "tp": self.tensor, "pp": self.pipeline}


class Load(NamedTuple):
    """The requests of one measurement.

    Attributes:
        case: sizes.
        requests: in all; `in_flight`: at a time.
        seed: of the random tokens.
    """

    case: Case
    requests: int
    in_flight: int
    seed: int = SEED


def arms_of(tensor: Iterable[int], pipeline: Iterable[int]) -> list[Arm]:
    """A single device, and the arms asked for."""
    asked = [Arm(f"TP {size}", tensor=size) for size in dict.fromkeys(tensor) if size > 1]
    asked += [Arm(f"PP {size}", pipeline=size) for size in dict.fromkeys(pipeline) if size > 1]
    return [Arm(SINGLE), *asked]


def fitting(
    cases: Sequence[Case], model: Model, is_chosen: bool, advice: str
) -> tuple[list[Case], list[tuple[Case, str]]]:
    """The cases that the model can run, and the others, each with the reason. Raises PerfError if the user
    chose one that it cannot run, or if none is left; `advice` says what to give instead.
    """
    longest = model.longest
    if longest is None:
        return list(cases), []
    fit, out = [], []
    for case in cases:
        if case.tokens <= longest:
            fit.append(case)
        else:
            length = f"{case.seq} tokens and {case.output} of output are {case.tokens}"
            out.append((case, f"{length}, and {model.name} is made for {longest}"))
    if out and (is_chosen or not fit):
        raise PerfError(f"{out[0][1]}; {advice}")
    return fit, out


def check_devices(arms: Iterable[Arm], count: int, what: str) -> None:
    """Raises PerfError for an arm that needs more devices than there are."""
    for arm in arms:
        if arm.devices > count:
            option = "--tp" if arm.tensor > 1 else "--pp"
            raise PerfError(
                f"{option} {arm.devices}: needs {arm.devices} {what}s, and this machine has {count};"
                f" give {option} {count} or less"
            )


def numbers(text: str) -> list[int]:
    """Parses `128,512`. Raises ArgumentTypeError."""
    parts = text.replace(",", " ").split()
    if not parts or not all(part.isdecimal() and int(part) for part in parts):
        raise ArgumentTypeError(f"{text!r} is not a list of whole numbers from 1 on, such as 128,512")
    return [int(part) for part in parts]
