"""Wraps verl's `tqbridge`, which gets a function's batch from the queue and puts its result there: from
outside, so that its own code runs as it is.

A class of the driver's `__main__` is sent to the workers by value, with every function of it and what these
refer to. So what is made here refers to names of this module alone, which are sent as such.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from flagscale_perf.hosts.patching import Patches
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.trace import tracer as tracing
from flagscale_perf.trace.records import Begun
from flagscale_perf.trace.running import CALL, Call

MODULE = "verl.utils.transferqueue_utils"
IMPORTED_BY = "verl.single_controller.base.decorator"  # by name
NAME = "tqbridge"
_Function = Callable[..., Any]
_kinds_of_batches: tuple[type, ...] = ()


def patch_bridge(module: ModuleType, patches: Patches) -> None:
    """Wraps `tqbridge` there. Raises AttributeError where there is none."""
    global _kinds_of_batches
    if module.__name__ == MODULE:
        _kinds_of_batches = module.BatchMeta, module.KVBatchMeta
    bridge = getattr(module, NAME)
    if getattr(bridge, "__module__", None) == __name__:  # imported by name from the module that is patched
        wrapped, bridge = bridge, bridge.__wrapped__
        setattr(module, NAME, bridge)
        patches.set(module, NAME, wrapped)
        return

    def tqbridge(*args: Any, **kwargs: Any) -> Callable[[_Function], _Function]:
        decorate = bridge(*args, **kwargs)
        return lambda function: traced(function, decorate)

    functools.update_wrapper(tqbridge, bridge, assigned=("__name__", "__qualname__", "__doc__"))
    patches.set(module, NAME, tqbridge)


def traced(function: _Function, decorate: Callable[[_Function], _Function]) -> _Function:
    """The function as `decorate` makes it, traced."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def compute_async(*args: Any, **kwargs: Any) -> Any:
            with _Work():
                return await function(*args, **kwargs)

        bridged = decorate(compute_async)

        @functools.wraps(bridged)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            with _Call(bridged.__name__, (*args, *kwargs.values())):
                return await bridged(*args, **kwargs)

        return call_async

    @functools.wraps(function)
    def compute(*args: Any, **kwargs: Any) -> Any:
        with _Work():
            return function(*args, **kwargs)

    bridged = decorate(compute)

    @functools.wraps(bridged)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _Call(bridged.__name__, (*args, *kwargs.values())):
            return bridged(*args, **kwargs)

    return call


class _Call:
    """Around a call, if it is one on a batch of the queue: others are left alone by the bridge, too."""

    def __init__(self, function: str, values: tuple[Any, ...]) -> None:
        self._function, self._values = function, values
        self._tracer = tracing.active
        self._call: Call | None = None

    def __enter__(self) -> None:
        batch = next((value for value in self._values if isinstance(value, _kinds_of_batches)), None)
        if self._tracer is not None and batch is not None:
            self._call = self._tracer.begin_call(self._function, batch)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._tracer is not None and self._call is not None:
            self._tracer.end_call(self._call, error)


class _Work:
    """Around the work of a call; nothing for a function without a batch, in the work of another."""

    def __enter__(self) -> None:
        call = CALL.get()
        self._call = None if call is None or call.compute_start_ns is not None else call
        if self._call is not None:
            self._call.compute_start_ns = monotonic_ns()
            _begin_stage(Begun.COMPUTE, self._call, self._call.compute_start_ns)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._call is not None:
            self._call.has_computed = error is None
            self._call.compute_end_ns = monotonic_ns()
            if error is None:
                _begin_stage(Begun.CALL_PUT, self._call, self._call.compute_end_ns)


def _begin_stage(begun: Begun, call: Call, at_ns: int) -> None:
    if tracing.active is not None:
        tracing.active.begin_stage(begun, call, at_ns)
