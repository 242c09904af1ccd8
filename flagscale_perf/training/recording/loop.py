"""The interface that a host adapter gives `hooks.TrainingHooks` to its training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.flops_calculator import Packed
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.work import NOT_COUNTED, Microbatch, RankWork

Pause = Literal["eval", "checkpoint"]
Flops = tuple[int | None, int | None]  # model, hardware
CountFlops = Callable[[int, Packed | None], Flops]


class StepNumbers(NamedTuple):
    """The host's own counts of one finished train step.

    Attributes:
        iteration: its number, from 1.
        updated: False when the optimizer skipped the update.
        samples: sequences consumed by all data-parallel ranks.
        tokens: tokens in them.
        microbatches: how many one data-parallel rank had.
        work: of this rank, where the loop counts it.
        packed: what all ranks have by that; None where it follows from the step's size, or is not known. The
            same object as in the step before says that nothing has changed.
    """

    iteration: int
    updated: bool
    samples: int
    tokens: int
    microbatches: int
    work: RankWork = NOT_COUNTED
    packed: Packed | None = None


class Loop(Protocol):
    """A training loop, as its host adapter answers for it.

    Attributes:
        rehearsing: torch.cuda calls land on the CPU.
    """

    rehearsing: bool

    def rank(self) -> int:
        """This process's number in the job; 0 is the one that writes."""

    def stage(self) -> int:
        """Its place in the pipeline, from 0."""

    def lockstep(self) -> int:
        """The ranks that wait for each other in every layer; see `RankIdentity`."""

    def microbatch(self) -> Microbatch:
        """What is known of this rank's micro-batches before the first of them."""

    def config(self) -> PerfConfig:
        """The options in force. Raises PerfError."""

    def facts(self, device: str) -> RunFacts:
        """What the host knows about the run, without peak and model; `device` is the device's name."""

    def device_types(self) -> Mapping[str, int]:
        """Device type -> number of its ranks; empty unless the job knows that its devices differ."""

    def model_args(self) -> Any:
        """The host's arguments that describe the model (read only)."""

    def position(self) -> tuple[int, int]:
        """Iterations finished or skipped, and samples consumed, before the step that begins now."""

    def numbers(self, result: Any) -> StepNumbers | None:
        """The numbers of the step that has just returned `result`; None if the host does not count it."""

    def skipped_samples(self) -> int:
        """Samples the host is passing over without a step."""

    def names_phases(self) -> bool:
        """Whether the host has timers that call `TrainingHooks.mark` for each phase."""

    def say(self, line: str) -> None:
        """Prints a line; called on rank 0 only."""


class WorkCounter(Protocol):
    """Counts what this rank works in a step, where that does not follow from the step's size.

    Attributes:
        ranks: how many data-parallel ranks the whole step is taken to have, each with as much as this one; 0
            where this rank says nothing about the whole step.
        spent_ns: what counting has taken of the training thread since the step began.
    """

    ranks: int
    spent_ns: int

    def begin(self) -> None:
        """A train step begins: what was counted before it, in an evaluation, is no part of it."""

    def take(self) -> RankWork:
        """What has been counted since then."""


class StepProfile(Protocol):
    """A profiler that takes a training's steps apart, beside the monitor. None of its methods raises."""

    def begin(self, iteration: int) -> None:
        """The step of this number, from 1, begins."""

    def end(self, numbers: StepNumbers | None) -> None:
        """It is over; None: the host does not count it as an iteration."""

    def close(self) -> None:
        """No more steps follow."""
