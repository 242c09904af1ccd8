"""Megatron's timers as a source of phases: the host's own class, whose timers also tell the monitor when they start and stop.

The model code asks `timers(name, level)` for a timer wherever a phase begins or ends, also where the level makes it a dummy.
The class is replaced under the name by which the host makes its one object of it, so that an object made anew (a restart
inside the process) is one of ours, too. What the host measures, keeps and prints stays its own.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from flagscale_perf.core.phases import PHASE_OF
from flagscale_perf.hooks import TrainingHooks
from flagscale_perf.hosts.patching import Patches

TIMERS_MODULE = "megatron.training.global_vars"
TIMERS_CLASS = "Timers"
_MARK = "_flagscale_perf_tells_phases"


class SilentTimer:
    """A timer that measures nothing."""

    def start(self, barrier: bool = False) -> None:
        """As Megatron's; no barrier."""

    def stop(self, barrier: bool = False) -> None:
        """As Megatron's; no barrier."""


class SilentTimers:
    """Timers as a loop over Megatron-Core asks for them, for one that has none."""

    def __init__(self) -> None:
        self._timer = SilentTimer()

    def __call__(self, name: str, log_level: int | None = None) -> SilentTimer:
        """The timer of that name."""
        return self._timer


def own_timers(hooks: TrainingHooks) -> SilentTimers:
    """Timers that tell the phases and do nothing else."""
    timers: SilentTimers = _telling(SilentTimers, hooks, __name__)()
    return timers


def patch_timers(module: ModuleType, hooks: TrainingHooks, patches: Patches, name: str = TIMERS_CLASS) -> None:
    """Replaces the class `name` in `module`; one that has none is left alone."""
    host_class = getattr(module, name, None)
    if isinstance(host_class, type):
        patches.set(module, name, _telling(host_class, hooks, module.__name__))


def tells_phases(timers: Any) -> bool:
    """Whether this object is one of the classes made here."""
    return hasattr(type(timers), _MARK)


class Shadow:
    """Stands before one timer of the host for the length of a train step; passes everything on and tells start and stop.

    A start is told after the host's own, a stop after it as well: where the host synchronises in them, the time counts as
    the host counts it. (A call without arguments is passed on as one: unpacking nothing takes longer than all the rest.)
    """

    __slots__ = ("host_timer", "start", "stop")

    def __init__(self, host_timer: Any, hooks: TrainingHooks, phase: int) -> None:
        def start(*args: Any, **kwargs: Any) -> Any:
            result = host_timer.start(*args, **kwargs) if args or kwargs else host_timer.start()
            timeline = hooks.timeline
            if timeline is not None:
                try:
                    timeline.start(phase)
                except Exception as error:
                    hooks.phase_failed(error)
            return result

        def stop(*args: Any, **kwargs: Any) -> Any:
            result = host_timer.stop(*args, **kwargs) if args or kwargs else host_timer.stop()
            timeline = hooks.timeline
            if timeline is not None:
                try:
                    timeline.stop(phase)
                except Exception as error:
                    hooks.phase_failed(error)
            return result

        for name, value in (("host_timer", host_timer), ("start", start), ("stop", stop)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.host_timer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.host_timer, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.host_timer, name)


def _telling(host_class: type, hooks: TrainingHooks, module_name: str) -> type:
    host_call: Any = host_class.__call__
    shadows: dict[str, Shadow] = {}

    def call(self: Any, name: str, log_level: Any = None, *args: Any, **kwargs: Any) -> Any:
        timer = host_call(self, name, log_level, *args, **kwargs) if args or kwargs else host_call(self, name, log_level)
        if hooks.timeline is None:
            return timer
        shadow = shadows.get(name)
        if shadow is not None and shadow.host_timer is timer:
            return shadow
        if name not in PHASE_OF:
            return timer
        shadow = shadows[name] = Shadow(timer, hooks, PHASE_OF[name])
        return shadow

    # The host's names, so that whatever looks the class up finds it where it stands.
    names = {"__module__": module_name, "__qualname__": host_class.__name__, "__doc__": host_class.__doc__}
    return type(host_class.__name__, (host_class,), {"__call__": call, _MARK: True, **names})
