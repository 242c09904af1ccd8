"""Megatron's timers as a source of phases: the host's own class, whose timers also tell the monitor when they start and stop.

The model code asks `timers(name, level)` for a timer wherever a phase begins or ends, also where the level makes it a dummy.
The class is replaced under the name by which the host makes its one object of it, so that an object made anew (a restart
inside the process) is one of ours, too. What the host measures, keeps and prints stays its own.
"""

from __future__ import annotations

import inspect
from collections import deque
from types import ModuleType
from typing import Any

from flagscale_perf.core.clock import monotonic_ns
from flagscale_perf.core.marks import STARTS, STOPS
from flagscale_perf.core.phases import PHASE_OF
from flagscale_perf.hooks import TrainingHooks
from flagscale_perf.hosts.patching import Patches

TIMERS_MODULE = "megatron.training.global_vars"
TIMERS_CLASS = "Timers"
_MARK = "_flagscale_perf_tells_phases"
PAIRS, TRIALS = 50, 10  # of start and stop, to find out what a mark takes: about a millisecond


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
    hooks.time_mark = time_mark
    return timers


def patch_timers(module: ModuleType, hooks: TrainingHooks, patches: Patches, name: str = TIMERS_CLASS) -> None:
    """Replaces the class `name` in `module`; one that has none, or whose timers are asked for in another way, is left alone."""
    host_class = getattr(module, name, None)
    if isinstance(host_class, type) and _parameters(host_class.__call__) == ["self", "name", "log_level"]:
        patches.set(module, name, _telling(host_class, hooks, module.__name__))
        hooks.time_mark = time_mark


def _parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


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
        starts, stops = STARTS[phase], STOPS[phase]

        def start(*args: Any, **kwargs: Any) -> Any:
            result = host_timer.start(*args, **kwargs) if args or kwargs else host_timer.start()
            mark = hooks.mark
            if mark is not None:
                try:
                    mark(monotonic_ns() + starts)
                except Exception as error:
                    hooks.phase_failed(error)
            return result

        def stop(*args: Any, **kwargs: Any) -> Any:
            result = host_timer.stop(*args, **kwargs) if args or kwargs else host_timer.stop()
            mark = hooks.mark
            if mark is not None:
                try:
                    mark(monotonic_ns() + stops)
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


class _Answers:
    """What to answer for the timers of one of the host's objects.

    The host's own answer to a name and a level changes only when it makes a timer, and it does that for a request it has not
    had before. So what has been asked once is remembered until the host answers to the same name with another timer.

    Attributes:
        owner: the host's object.
        known: name -> level -> answer.
    """

    def __init__(self, owner: Any, hooks: TrainingHooks) -> None:
        self.owner = owner
        self.known: dict[str, dict[int | None, Any]] = {}
        self._hooks = hooks
        self._timers: dict[str, Any] = {}
        self._given: dict[str, Any] = {}

    def add(self, name: str, log_level: int | None, timer: Any) -> Any:
        """The answer where the host gives `timer`: a shadow of it if it tells a phase, else itself."""
        if name not in self.known or self._timers[name] is not timer:
            self._timers[name] = timer
            self._given[name] = Shadow(timer, self._hooks, PHASE_OF[name]) if name in PHASE_OF else timer
            self.known[name] = {}
        self.known[name][log_level] = self._given[name]
        return self._given[name]


def _telling(host_class: type, hooks: TrainingHooks, module_name: str) -> type:
    host_call: Any = host_class.__call__
    answers = _Answers(None, hooks)

    def call(self: Any, name: str, log_level: int | None = None) -> Any:
        nonlocal answers
        if hooks.mark is None:
            return host_call(self, name, log_level)
        if self is not answers.owner:
            answers = _Answers(self, hooks)
        known = answers.known.get(name)
        if known is not None and log_level in known:
            return known[log_level]
        return answers.add(name, log_level, host_call(self, name, log_level))

    # The host's names, so that whatever looks the class up finds it where it stands.
    names = {"__module__": module_name, "__qualname__": host_class.__name__, "__doc__": host_class.__doc__}
    return type(host_class.__name__, (host_class,), {"__call__": call, _MARK: True, **names})


def time_mark() -> int:
    """Nanoseconds that a mark takes beyond the host's own call for it, on this machine now: half of what a pair adds, at best."""
    hooks = TrainingHooks()
    hooks.mark = deque[int](maxlen=1).append
    telling = _telling(SilentTimers, hooks, __name__)()
    return max(0, min(_pairs_ns(telling) for _ in range(TRIALS)) - min(_pairs_ns(SilentTimers()) for _ in range(TRIALS))) // (2 * PAIRS)


def _pairs_ns(timers: Any) -> int:
    start_ns = monotonic_ns()
    for _ in range(PAIRS):
        timers("optimizer", log_level=2).start()
        timers("optimizer").stop()
    return monotonic_ns() - start_ns
