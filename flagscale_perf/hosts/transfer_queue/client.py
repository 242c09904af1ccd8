"""What is wrapped around `AsyncTransferQueueClient`: every way to put or get ends in two methods of it."""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

from flagscale_perf.hosts.patching import Patches
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.trace import tracer as tracing

MODULE = "transfer_queue.client"
CLIENT = "AsyncTransferQueueClient"
PUT, GET, TAGS = "async_put", "async_get_data", "async_set_custom_meta"
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
    """The same, with what the class has now."""
    client = getattr(sys.modules.get(MODULE), CLIENT, None)
    if client is not None:
        bind_again(client)


def _traced_put(put: _Method) -> _Method:
    @functools.wraps(put)
    async def async_put(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Puts as before."""
        tracer = tracing.active
        if tracer is None:
            return await put(self, *args, **kwargs)
        operation = tracing.Operation(tracing.PUT, tracing.CALL.get(), monotonic_ns())
        tracing.OPERATION.set(operation)
        try:
            batch = await put(self, *args, **kwargs)
        except BaseException as error:
            given = args[1] if len(args) > 1 else kwargs.get("metadata")
            tracer.end_operation(operation, given, None, error)
            raise
        finally:
            tracing.OPERATION.set(None)
        tracer.end_operation(operation, batch, args[0] if args else kwargs["data"], None)
        return batch

    return async_put


def _traced_get(get: _Method) -> _Method:
    @functools.wraps(get)
    async def async_get_data(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Gets as before."""
        tracer = tracing.active
        if tracer is None:
            return await get(self, *args, **kwargs)
        operation = tracing.Operation(tracing.GET, tracing.CALL.get(), monotonic_ns())
        tracing.OPERATION.set(operation)
        batch = args[0] if args else kwargs.get("metadata")
        try:
            data = await get(self, *args, **kwargs)
        except BaseException as error:
            tracer.end_operation(operation, batch, None, error)
            raise
        finally:
            tracing.OPERATION.set(None)
        tracer.end_operation(operation, batch, data, None)
        return data

    return async_get_data


def _stamped(set_tags: _Method) -> _Method:
    @functools.wraps(set_tags)
    async def async_set_custom_meta(self: Any, metadata: Any, *args: Any, **kwargs: Any) -> Any:
        """Stores the tags as before, and the trace id with them."""
        if tracing.active is not None:
            tracing.active.stamp(metadata)
        return await set_tags(self, metadata, *args, **kwargs)

    return async_set_custom_meta
