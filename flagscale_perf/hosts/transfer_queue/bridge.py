"""What is wrapped around verl's `tqbridge`, which gets a function's batch from the queue and puts its result
there: from outside, so that its own code runs as it is.

A class of the driver's `__main__` is sent to the workers by value, with every function of it and what these
refer to. So what is made here refers to functions of this module alone, which are sent by their names.
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
        """Decorates as before."""
        decorate = bridge(*args, **kwargs)
        return lambda function: traced(function, decorate)

    functools.update_wrapper(tqbridge, bridge, assigned=("__name__", "__qualname__", "__doc__"))
    patches.set(module, NAME, tqbridge)


def traced(function: _Function, decorate: Callable[[_Function], _Function]) -> _Function:
    """The function as `decorate` makes it, traced."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def compute_async(*args: Any, **kwargs: Any) -> Any:
            """The function's own work."""
            return await awaited_work(function, args, kwargs)

        bridged = decorate(compute_async)

        @functools.wraps(bridged)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            """Calls as before."""
            return await awaited_call(bridged, args, kwargs)

        return call_async

    @functools.wraps(function)
    def compute(*args: Any, **kwargs: Any) -> Any:
        """The function's own work."""
        return work(function, args, kwargs)

    bridged = decorate(compute)

    @functools.wraps(bridged)
    def call(*args: Any, **kwargs: Any) -> Any:
        """Calls as before."""
        return called(bridged, args, kwargs)

    return call


def called(bridged: _Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The bridged function's result."""
    tracer = tracing.active
    call = None if tracer is None else _begin(tracer, bridged.__name__, (*args, *kwargs.values()))
    if tracer is None or call is None:
        return bridged(*args, **kwargs)
    error: BaseException | None = None
    try:
        return bridged(*args, **kwargs)
    except BaseException as raised:
        error = raised
        raise
    finally:
        tracer.end_call(call, error)


async def awaited_call(bridged: _Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The same for a coroutine."""
    tracer = tracing.active
    call = None if tracer is None else _begin(tracer, bridged.__name__, (*args, *kwargs.values()))
    if tracer is None or call is None:
        return await bridged(*args, **kwargs)
    error: BaseException | None = None
    try:
        return await bridged(*args, **kwargs)
    except BaseException as raised:
        error = raised
        raise
    finally:
        tracer.end_call(call, error)


def work(function: _Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The function's own result, between get and put."""
    call = _begin_work()
    if call is None:
        return function(*args, **kwargs)
    try:
        result = function(*args, **kwargs)
        call.has_computed = True
        return result
    finally:
        _end_work(call)


async def awaited_work(function: _Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The same for a coroutine."""
    call = _begin_work()
    if call is None:
        return await function(*args, **kwargs)
    try:
        result = await function(*args, **kwargs)
        call.has_computed = True
        return result
    finally:
        _end_work(call)


def _begin(tracer: tracing.Tracer, function: str, values: tuple[Any, ...]) -> Call | None:
    """The call, if it is one on a batch of the queue: others are left alone by the bridge, too."""
    for value in values:
        if isinstance(value, _kinds_of_batches):
            return tracer.begin_call(function, value)
    return None


def _begin_work() -> Call | None:
    """The call that this is the work of; None for a function without a batch, in the work of another."""
    call = CALL.get()
    if call is None or call.compute_start_ns is not None:
        return None
    call.compute_start_ns = monotonic_ns()
    if tracing.active is not None:
        tracing.active.begin_stage(Begun.COMPUTE, call, call.compute_start_ns)
    return call


def _end_work(call: Call) -> None:
    call.compute_end_ns = monotonic_ns()
    if tracing.active is not None and call.has_computed:
        tracing.active.begin_stage(Begun.CALL_PUT, call, call.compute_end_ns)
