"""Profiling beside the monitor: which part of the package does it, and what is said where it cannot.

By name, and only where it is asked for: profiling is an instrument of its own, which can be left out.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.hooks import Loop, StepNumbers, StepProfile, TrainingHooks
from flagscale_perf.options.values import Steps
from flagscale_perf.spine.errors import PerfError

PROFILING_MODULE = "flagscale_perf.hosts.profiling.megatron"
ABSENT = "this installation of flagscale_perf has no profiling; install the whole package"


def check_asked(config: PerfConfig) -> None:
    """Raises PerfError for steps that cannot be profiled like this, or by nothing that is installed."""
    if config.enable_perf_monitor and config.perf_profile_steps is not None:
        _profiling(config).check(config)


def begin_profile(hooks: TrainingHooks, loop: Loop, models: Callable[[], Any]) -> None:
    """Gives the steps from now on to the profiler, if profiling is asked for, and prepares for being asked
    while the training lasts. A failure is reported, and the training is monitored without profiling.

    Args:
        hooks: of a training that has begun.
        loop: its loop.
        models: returns its model, or the chunks of it; called only if profiling is asked for.
    """
    config = loop.config()
    hooks.profile_on_request(lambda first, last: _requested(hooks, models(), config, (first, last)))
    if config.perf_profile_steps is None:
        return
    try:
        hooks.profile = _profiling(config).begin(models(), config, hooks.job)
    except Exception as error:  # whatever it is: the monitor goes on
        kind = "" if isinstance(error, PerfError) else f"{type(error).__name__}: "
        hooks.note(f"not profiled: {kind}{error}")
        return
    ranks = f" of ranks {config.perf_profile_ranks}" if config.perf_profile_ranks else ""
    steps = Steps.parse(config.perf_profile_steps)
    again = f", and again every {steps.every}" if steps.every else ""
    hooks.note(
        f"{steps.last - steps.first + 1} iterations{ranks} from {steps.first} on{again} are profiled, each"
        f" beside {config.perf_profile_clean} clean; they take longer"
    )


class Requested:
    """A `StepProfile` of one window, which takes itself out of the training behind it."""

    def __init__(self, hooks: TrainingHooks, profile: StepProfile, last: int) -> None:
        """`last` iteration of the window."""
        self._hooks, self._profile, self._last = hooks, profile, last
        self._iteration = 0

    def begin(self, iteration: int) -> None:
        """The step of this number begins."""
        self._iteration = iteration
        self._profile.begin(iteration)

    def end(self, numbers: StepNumbers | None) -> None:
        """It is over. Behind the last one, the records are waited for on a thread."""
        self._profile.end(numbers)
        if self._iteration >= self._last and self._hooks.profile is self:
            self._hooks.profile = None
            threading.Thread(target=self._profile.close, name="flagscale_perf profiled").start()

    def close(self) -> None:
        """No more steps follow."""
        self._profile.close()


def _requested(
    hooks: TrainingHooks, models: Any, config: PerfConfig, window: tuple[int, int]
) -> StepProfile | None:
    """Raises PerfError where there is no profiling."""
    asked = replace(config, perf_profile_steps=f"{window[0]}-{window[1]}")
    module = _profiling(asked)
    profile: StepProfile | None = module.begin(models, asked, hooks.job)
    return None if profile is None else Requested(hooks, profile, window[0] + module.length(asked) - 1)


def _profiling(config: PerfConfig) -> ModuleType:
    try:
        return importlib.import_module(PROFILING_MODULE)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("flagscale_perf."):
            raise
        raise PerfError(f"--perf-profile-steps {config.perf_profile_steps}: {ABSENT}") from None
