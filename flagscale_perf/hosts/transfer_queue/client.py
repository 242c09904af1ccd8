"""Wraps `AsyncTransferQueueClient`: every way to put or get ends in two of its methods."""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import sys
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

from flagscale_perf.hosts.patching import Patches
from flagscale_perf.hosts.transfer_queue.stages import Point
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.trace import running
from flagscale_perf.trace import tracer as tracing

MODULE = "transfer_queue.client"
CLIENT = "AsyncTransferQueueClient"
PUT, GET, TAGS = "async_put", "async_get_data", "async_set_custom_meta"
_FETCH = "fetch"
_Method = Callable[..., Awaitable[Any]]


def patch_client(module: ModuleType, patches: Patches) -> None:
    """Wraps both methods, for all clients, those that are there included. Raises AttributeError where the
    class has them no longer.
    """
    client = getattr(module, CLIENT)
    put, get = getattr(client, PUT), getattr(client, GET)
    patches.set(client, PUT, _traced_put(put))
    patches.set(client, GET, _traced_get(get))
    bind_again(client)


def patch_tags(module: ModuleType, patches: Patches) -> None:
    """Wraps what every put stores its samples' tags by: they are the one thing that stays with a sample."""
    client = getattr(module, CLIENT)
    patches.set(client, TAGS, _stamped(getattr(client, TAGS)))


def bind_again(client: type) -> None:
    """Live clients took their synchronous methods from the class when they were made; they take them anew."""
    for each in gc.get_objects():
        if issubclass(type(each), client) and hasattr(each, "_bind_sync_methods"):
            with contextlib.suppress(Exception):  # one that is being made, or was closed: it has none to take
                each._bind_sync_methods()


def bind_again_after_undo() -> None:
    """Gives live clients the class's own methods back, once the wrappers are off."""
    client = getattr(sys.modules.get(MODULE), CLIENT, None)
    if client is not None:
        bind_again(client)


def _traced_put(put: _Method) -> _Method:
    @functools.wraps(put)
    async def async_put(self: Any, *args: Any, **kwargs: Any) -> Any:
        tracer = tracing.active
        if tracer is None:
            return await put(self, *args, **kwargs)
        given = args[1] if len(args) > 1 else kwargs.get("metadata")
        partition = args[2] if len(args) > 2 else kwargs.get("partition_id")
        operation = tracer.begin_operation(running.PUT, given, partition or "")
        try:
            batch = await put(self, *args, **kwargs)
        except BaseException as error:  # one that is cancelled ends, too
            tracer.end_operation(operation, given, None, error)
            raise
        finally:
            running.OPERATION.set(None)
        tracer.end_operation(operation, batch, args[0] if args else kwargs["data"], None)
        return batch

    return async_put


def _traced_get(get: _Method) -> _Method:
    @functools.wraps(get)
    async def async_get_data(self: Any, *args: Any, **kwargs: Any) -> Any:
        tracer = tracing.active
        if tracer is None:
            return await get(self, *args, **kwargs)
        batch = args[0] if args else kwargs.get("metadata")
        operation = tracer.begin_operation(running.GET, batch)
        try:
            data = await get(self, *args, **kwargs)
        except BaseException as error:  # one that is cancelled ends, too
            tracer.end_operation(operation, batch, None, error)
            raise
        finally:
            running.OPERATION.set(None)
        tracer.end_operation(operation, batch, data, None)
        return data

    return async_get_data


def _traced_wait(get_meta: _Method) -> _Method:
    parameters = tuple(inspect.signature(get_meta).parameters)[1:]  # without the client

    @functools.wraps(get_meta)
    async def async_get_meta(self: Any, *args: Any, **kwargs: Any) -> Any:
        tracer = tracing.active
        said = dict(zip(parameters, args, strict=False)) | kwargs
        wait = None
        if tracer is not None and said.get("mode", _FETCH) == _FETCH:  # puts ask, too: for room
            wait = tracer.begin_wait(said)
        if tracer is None or wait is None:
            return await get_meta(self, *args, **kwargs)
        try:
            batch = await get_meta(self, *args, **kwargs)
        except BaseException as error:  # one that is cancelled ends, too
            tracer.end_wait(wait, None, error)
            raise
        tracer.end_wait(wait, batch, None)
        return batch

    return async_get_meta


def _traced_clear(clear: _Method) -> _Method:
    @functools.wraps(clear)
    async def async_clear_samples(self: Any, *args: Any, **kwargs: Any) -> Any:
        batch = args[0] if args else kwargs.get("metadata")
        return await _cleared(clear, (self, *args), kwargs, (None, batch))

    return async_clear_samples


def _traced_clear_partition(clear: _Method) -> _Method:
    @functools.wraps(clear)
    async def async_clear_partition(self: Any, *args: Any, **kwargs: Any) -> Any:
        partition = args[0] if args else kwargs.get("partition_id")
        return await _cleared(clear, (self, *args), kwargs, (str(partition), None))

    return async_clear_partition


async def _cleared(
    clear: _Method, args: tuple[Any, ...], kwargs: dict[str, Any], what: tuple[str | None, Any]
) -> Any:
    tracer = tracing.active
    if tracer is None:
        return await clear(*args, **kwargs)
    clearing = running.Clear(*what, monotonic_ns())
    running.CLEAR.set(clearing)
    error: BaseException | None = None
    try:
        return await clear(*args, **kwargs)
    except BaseException as raised:  # the same
        error = raised
        raise
    finally:
        running.CLEAR.set(None)
        tracer.end_clear(clearing, error)


def _marked(mark: _Method) -> _Method:
    @functools.wraps(mark)
    async def mark_clearing(self: Any, metadata: Any, *args: Any, **kwargs: Any) -> Any:
        clearing = running.CLEAR.get()
        if clearing is not None:
            clearing.batch = metadata
        return await mark(self, metadata, *args, **kwargs)

    return mark_clearing


def _keyed(retrieve: _Method) -> _Method:
    parameters = tuple(inspect.signature(retrieve).parameters)[1:]  # without the client

    @functools.wraps(retrieve)
    async def async_kv_retrieve_meta(self: Any, *args: Any, **kwargs: Any) -> Any:
        batch = await retrieve(self, *args, **kwargs)
        said = dict(zip(parameters, args, strict=False)) | kwargs
        if tracing.active is not None and said.get("create") and batch.global_indexes:
            tracing.active.add_keys(said["keys"], batch)
        return batch

    return async_kv_retrieve_meta


def _stamped(set_tags: _Method) -> _Method:
    @functools.wraps(set_tags)
    async def async_set_custom_meta(self: Any, metadata: Any, *args: Any, **kwargs: Any) -> Any:
        if tracing.active is not None:
            tracing.active.stamp(metadata)
        return await set_tags(self, metadata, *args, **kwargs)

    return async_set_custom_meta


_CLEARED = "which samples are cleared"
# Methods of the client beside put and get.
PARTS = (
    Point(MODULE, CLIENT, "async_clear_samples", _CLEARED, _traced_clear),
    Point(MODULE, CLIENT, "async_clear_partition", _CLEARED, _traced_clear_partition),
    # Is given the samples of a partition that is cleared:
    Point(MODULE, CLIENT, "_mark_clearing_in_controller", _CLEARED, _marked),
    Point(MODULE, CLIENT, "async_get_meta", "how long consumers wait", _traced_wait),
)
KEYS = Point(MODULE, CLIENT, "async_kv_retrieve_meta", "keys of samples", _keyed)
