"""How much of a delay the step feels: known delays are planted in places of some ranks, on some steps.

A share of a step's time does not say what removing it would gain: nothing, if it is hidden behind another
rank or behind communication. A delay does: the slope, by how much the step grows with the delay, is 1 if
everything waits for it and 0 if nothing does (`analysis/causal.py`).

The delay is a sleep: on a machine whose cores are all in use, spinning would slow the other ranks and so be
felt where nothing waits for it. It holds up the host's thread; with an accelerator it tells how much of the
host's time is felt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from flagscale_perf.profile.ranges import paths_of
from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.delays import Arm, Delays, Place
from flagscale_perf.spine.errors import PerfError


@dataclass(frozen=True)
class Taken:
    """One step of an experiment: the delay asked for on any rank, and the one planted on this rank."""

    iteration: int
    arm: Arm
    start_ns: int
    total_ns: int
    planted_ns: int
    runs: int


class Experiment:
    """Delays steps between `begin_step` and `end_step`; on ranks without a place it only times them. From the
    first step to `close` it has hooks in the model, and around operators if delays are asked for there.
    """

    def __init__(self, models: nn.Module | Sequence[nn.Module], delays: Delays, rank: int) -> None:
        """Starts nothing yet. Raises PerfError where a place of this rank is no module of its model."""
        self._delays = delays
        self._modules: dict[Place, nn.Module | None] = {}
        modules = paths_of(models)
        for place in delays.places:
            if place.rank == rank:
                self._modules[place] = _module_of(place, modules)
        self._handles: list[Any] = []
        self._mode: _BeforeOperators | None = None
        self._inside: dict[Place, int] = {}
        self._step: tuple[int, Arm, int] | None = None
        self._planted_ns = self._runs = 0
        self.taken: list[Taken] = []

    @property
    def is_over(self) -> bool:
        """Whether it has had all its steps."""
        return len(self.taken) >= self._delays.length

    def begin_step(self, position: int, iteration: int) -> None:
        """Begins the step at this position of the experiment."""
        if not self._handles:
            self._attach()
        if self._mode is not None:
            self._mode.__enter__()
        self._planted_ns = self._runs = 0
        self._step = (iteration, self._delays.arm(position), monotonic_ns())

    def end_step(self) -> None:
        """Ends the step; does nothing if none has begun."""
        if self._step is None:
            return
        (iteration, arm, start_ns), self._step = self._step, None
        total_ns = monotonic_ns() - start_ns
        if self._mode is not None:
            self._mode.__exit__(None, None, None)
        self.taken.append(Taken(iteration, arm, start_ns, total_ns, self._planted_ns, self._runs))

    def close(self) -> None:
        """Removes all hooks from the model."""
        if self._step is not None and self._mode is not None:
            self._mode.__exit__(None, None, None)
        self._step = self._mode = None
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _attach(self) -> None:
        for place, module in self._modules.items():
            if module is None:
                continue
            if place.op:
                before, after = self._counting(place)
                self._handles.append(module.register_forward_pre_hook(before))
                self._handles.append(module.register_forward_hook(after, always_call=True))
            else:
                self._handles.append(module.register_forward_pre_hook(self._planting(place)))
        if any(place.op for place in self._modules):
            self._mode = _BeforeOperators(self._before_operator)

    def _planting(self, place: Place) -> Callable[..., None]:
        def before(*_: object) -> None:
            self._plant(place)

        return before

    def _counting(self, place: Place) -> tuple[Callable[..., None], Callable[..., None]]:
        """Hooks that count whether the module is running."""

        def before(*_: object) -> None:
            self._inside[place] = self._inside.get(place, 0) + 1

        def after(*_: object) -> None:
            self._inside[place] = max(0, self._inside.get(place, 0) - 1)

        return before, after

    def _before_operator(self, op: str) -> None:
        for place, module in self._modules.items():
            if place.op == op and (module is None or self._inside.get(place, 0)):
                self._plant(place)

    def _plant(self, place: Place) -> None:
        if self._step is not None and self._step[1].place == place:
            begin_ns = monotonic_ns()
            time.sleep(self._step[1].delay_ns / NS_PER_S)
            self._planted_ns += monotonic_ns() - begin_ns
            self._runs += 1


class _BeforeOperators(TorchDispatchMode):  # type: ignore[misc]  # torch does not annotate it
    """Calls a function with each operator's name before it runs."""

    def __init__(self, before: Callable[[str], None]) -> None:
        super().__init__()
        self._before = before

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operator unchanged."""
        self._before(func._schema.name)
        return func(*args, **(kwargs or {}))


def _module_of(place: Place, modules: dict[str, nn.Module]) -> nn.Module | None:
    """The module of a place; None for an operator wherever it runs. Raises PerfError."""
    if place.op and not place.module:
        return None
    path = place.module or next(iter(modules))
    if path not in modules:
        known = ", ".join([*modules][:6])
        raise PerfError(f"{place}: rank {place.rank} has no module {path!r}; it has {known} ...")
    return modules[path]
