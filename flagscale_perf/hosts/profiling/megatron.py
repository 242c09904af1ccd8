"""Models of Megatron-Core, in whatever loop the monitor watches: FlagScale's, Megatron-LM's,
Megatron-Bridge's or one of the user's own.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.hosts.profiling.place import megatron_rank
from flagscale_perf.profile.options import Schedule, options_of
from flagscale_perf.profile.profiler import Profiler


class TrainingProfile:
    """`hooks.StepProfile`: gives a training's steps to a profiler."""

    def __init__(self, profiler: Profiler) -> None:
        self._profiler = profiler

    def begin(self, iteration: int) -> None:
        """Begins the step of this number."""
        self._profiler.begin_step(iteration)

    def end(self, numbers: Any) -> None:
        """Ends the step; `numbers`: a `hooks.StepNumbers`; None for a step that the host does not count."""
        if numbers is None:
            self._profiler.end_step()
        else:
            self._profiler.end_step(numbers.samples, numbers.tokens)

    def close(self) -> None:
        """No more steps follow; waits until the records are in the writer's hands."""
        self._profiler.close()


def check(config: PerfConfig) -> None:
    """Raises PerfError for steps that cannot be profiled like this."""
    Schedule.of(options_of(config))


def length(config: PerfConfig) -> int:
    """Steps from a window's first to its last, clean ones and the one with shapes among them."""
    schedule = Schedule.of(options_of(config))
    return 0 if schedule is None else schedule.length


def begin(models: Any, config: PerfConfig, job: str) -> TrainingProfile | None:
    """The profile of a training, in the monitor's directory; None for a rank that is not profiled.

    Args:
        models: the model, or its chunks.
        config: the options in force.
        job: the same for all ranks of this start of the training, and for no other.
    """
    options, rank = options_of(config, job), megatron_rank()
    if not options.wants(rank.number):
        return None
    chunks = [models] if isinstance(models, nn.Module) else list(models)
    return TrainingProfile(Profiler(chunks, options, rank=rank))
