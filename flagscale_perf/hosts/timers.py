"""Megatron's timers as a source of phases: during a monitored training their starts and stops are marks.

The model code asks `timers(name, level)` for a timer wherever a phase begins or ends, also where the level
makes it a dummy. The host's one object of timers becomes one of a subclass made here, and an object of its
own class again when training ends. What the host measures, keeps and prints does not change.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from time import thread_time_ns
from types import FunctionType
from typing import Any

from flagscale_perf.hooks import TrainingHooks
from flagscale_perf.hosts.patching import Patches
from flagscale_perf.spine import hot
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.training.marks import STARTS, STOPS
from flagscale_perf.training.phases import NUMBER_OF

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


def can_mark_phases(timers: Any) -> bool:
    """Whether these timers are asked for as Megatron's are."""
    call = inspect.getattr_static(type(timers), "__call__", None)
    return isinstance(call, FunctionType) and list(inspect.signature(call).parameters) == [
        "self",
        "name",
        "log_level",
    ]


def mark_phases(timers: Any, hooks: TrainingHooks, patches: Patches) -> None:
    """Makes these timers mark the phases until `patches` are undone. Raises TypeError if it cannot."""
    # The class is swapped, and no other object put in its place, because the model's configuration and every
    # module built from it hold this very object; and the class, not the object, because Python looks up
    # `__call__` there.
    patches.set_class(timers, _marking(type(timers), hooks))


def phase_timer(hooks: TrainingHooks, name: str) -> SilentTimer:
    """A timer that marks the phase of that name and does nothing else."""
    timer: SilentTimer = _silent_shadow(
        SilentTimer(), _silent_shadows(SilentTimer, hooks), hooks, NUMBER_OF[name]
    )
    return timer


def _marking(host_class: type, hooks: TrainingHooks) -> type:
    host_call: Any = host_class.__call__
    answers = _Answers(hooks)
    known = answers.known

    def call(self: Any, name: str, log_level: int | None = None) -> Any:
        try:
            return known[log_level][name]
        except KeyError:
            pass
        return answers.add(name, log_level, host_call(self, name, log_level))

    # No slots, so that the host's objects can change to this class.
    return type(
        host_class.__name__,
        (host_class,),
        {"__call__": call, "__reduce__": _as_of(host_class), "__slots__": ()},
    )


def _as_of(host_class: type) -> Callable[[Any], tuple[Any, ...]]:
    """A `__reduce__` for copy and pickle: copies are of the host's class and mark nothing."""
    return lambda self: (object.__new__, (host_class,), vars(self))


class _Answers:
    """The answers to requests for a timer of the host's object.

    The host's own answer to a name and a level changes only when it makes a timer, and it does that for a
    request it has not had before. So what has been asked once is remembered until the host answers to the
    same name with another timer.

    Attributes:
        known: level -> name -> answer.
    """

    def __init__(self, hooks: TrainingHooks) -> None:
        self.known: dict[int | None, dict[str, Any]] = {}
        self._hooks = hooks
        self._timers: dict[str, Any] = {}
        self._given: dict[str, Any] = {}
        self._kinds: dict[type, type] = {}  # class of silent timers -> of their shadows

    def add(self, name: str, log_level: int | None, timer: Any) -> Any:
        """The answer where the host gives `timer`: a shadow of it if its name is a phase's, else itself."""
        if name not in self._timers or self._timers[name] is not timer:
            for answers in self.known.values():
                answers.pop(name, None)
            self._timers[name] = timer
            self._given[name] = self._shadow(timer, NUMBER_OF[name]) if name in NUMBER_OF else timer
        self.known.setdefault(log_level, {})[name] = self._given[name]
        return self._given[name]

    def _shadow(self, timer: Any, number: int) -> Any:
        if not _measures_nothing(timer):
            return Shadow(timer, self._hooks, number)
        host_class = type(timer)
        if host_class not in self._kinds:
            self._kinds[host_class] = _silent_shadows(host_class, self._hooks)
        return _silent_shadow(timer, self._kinds[host_class], self._hooks, number)


def _silent_shadow(timer: Any, kind: Any, hooks: TrainingHooks, number: int) -> Any:
    shadow: Any = object.__new__(kind)
    vars(shadow).update(vars(timer))
    given: tuple[Any, Any] = (STARTS[number], STOPS[number])
    if kind.__slots__ == _STAMPS and hot.extension is not None:
        given = hot.extension.Stamp(hooks, given[0]), hot.extension.Stamp(hooks, given[1])
    for name, value in zip(kind.__slots__, given, strict=True):
        setattr(shadow, name, value)
    return shadow


# What each shadow of a silent timer has of its own: what marks the phase (C), or its codes (Python)
_STAMPS, _CODES = ("start", "stop"), ("starts", "stops")


def _silent_shadows(host_class: type, hooks: TrainingHooks) -> type:
    """A subclass of a class whose start and stop do nothing; its start and stop mark the phase."""
    own: dict[str, Any] = {"__slots__": _STAMPS}
    if hot.extension is None:
        own = {"__slots__": _CODES} | _marking_methods(hooks)
    return type(host_class.__name__, (host_class,), own | {"__reduce__": _as_of(host_class)})


def _marking_methods(hooks: TrainingHooks) -> dict[str, Callable[..., None]]:
    """Both are written out because they run for every mark, to which a common function would add a call."""

    def start(self: Any, barrier: bool = False) -> None:
        mark = hooks.mark
        if mark is not None:
            try:
                mark(monotonic_ns() + self.starts)
            except Exception as error:  # no failure of the monitor may end a training
                hooks.phase_failed(error)

    def stop(self: Any, barrier: bool = False) -> None:
        mark = hooks.mark
        if mark is not None:
            try:
                mark(monotonic_ns() + self.stops)
            except Exception as error:  # no failure of the monitor may end a training
                hooks.phase_failed(error)

    return {"start": start, "stop": stop}


def _measures_nothing(timer: Any) -> bool:
    """Whether its start and its stop are methods that take what `SilentTimer`'s do and do nothing, like those
    of the host's dummy. Then its shadow need not call them.
    """
    # The dummy's class is not compared by name, as another version of the host could make it measure.
    if vars(timer).keys() & {"start", "stop"}:  # methods of its own, which its class does not show
        return False
    return all(_does_nothing(getattr(type(timer), name, None)) for name in ("start", "stop"))


def _does_nothing(function: Any) -> bool:
    """In doubt, as for a function in C, it does something, and is called."""
    if not isinstance(function, FunctionType):
        return False
    # The same operations without their arguments: all they do is to return a constant, which is None.
    code, model = function.__code__, SilentTimer.start
    is_alike = code.co_varnames == model.__code__.co_varnames and function.__defaults__ == model.__defaults__
    is_empty = code.co_code[::2] == model.__code__.co_code[::2]
    return is_alike and is_empty and all(one in (None, function.__doc__) for one in code.co_consts)


class Shadow:
    """Stands before one timer of the host that measures; passes everything on and marks start and stop.

    Both are marked after the host's own: where the host synchronises in them, time counts as the host counts
    it.
    """

    __slots__ = ("host_timer", "start", "stop")

    def __init__(self, host_timer: Any, hooks: TrainingHooks, number: int) -> None:
        marking = _silent_shadow(SilentTimer(), _silent_shadows(SilentTimer, hooks), hooks, number)

        def start(*args: Any, **kwargs: Any) -> Any:
            result = host_timer.start(*args, **kwargs)
            marking.start()
            return result

        def stop(*args: Any, **kwargs: Any) -> Any:
            result = host_timer.stop(*args, **kwargs)
            marking.stop()
            return result

        for name, value in (("host_timer", host_timer), ("start", start), ("stop", stop)):
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is one of the host's timer."""
        return object.__new__, (type(self.host_timer),), vars(self.host_timer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.host_timer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.host_timer, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.host_timer, name)


def time_mark() -> int:
    """Nanoseconds that a mark takes beyond the host's own call, on this machine now: half of what a pair of
    start and stop adds, at best.
    """
    hooks, timers = TrainingHooks(), SilentTimers()
    hooks.mark = hot.new_marks(1).add
    mark_phases(timers, hooks, Patches())
    return max(
        0,
        min(_pairs_ns(timers) for _ in range(TRIALS)) - min(_pairs_ns(SilentTimers()) for _ in range(TRIALS)),
    ) // (2 * PAIRS)


def _pairs_ns(timers: Any) -> int:
    start_ns = thread_time_ns()
    for _ in range(PAIRS):
        timers("optimizer", log_level=2).start()
        timers("optimizer").stop()
    return thread_time_ns() - start_ns
