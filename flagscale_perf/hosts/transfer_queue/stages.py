"""Measures the stages of a put or get, by wrapping the parts of TransferQueue that do them.

These are no public names. One that is gone costs what it shows, which is then unknown, and a line that says
so; nothing else.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from flagscale_perf.hosts.patching import Patches
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.trace.running import GET, OPERATION, PUT
from flagscale_perf.trace.tracer import note

_Method = Callable[..., Any]
_Coroutine = Callable[..., Awaitable[Any]]
_BASE = "transfer_queue.storage.managers.base"
_STORAGE = "transfer_queue.storage.managers.simple_storage_manager", "AsyncSimpleStorageManager"
_MESSAGE = "transfer_queue.utils.zmq_utils", "ZMQMessage"
_CLIENT = "transfer_queue.client", "AsyncTransferQueueClient"


@dataclass(frozen=True)
class Point:
    """One part of the queue that is wrapped.

    Attributes:
        module, owner, name: where it is.
        cost: what is not known without it.
        wrap: makes the traced one of it.
    """

    module: str
    owner: str
    name: str
    cost: str
    wrap: Callable[[Any], Any]


def patch_points(module: ModuleType, patches: Patches, points: Sequence[Point]) -> None:
    """Wraps what the module has of them. One that is gone is said, and costs what it would show."""
    for point in points:
        if point.module != module.__name__:
            continue
        owner = getattr(module, point.owner, None)
        before = None if owner is None else vars(owner).get(point.name)
        if before is None:
            path = f"{point.module}.{point.owner}.{point.name}"
            note(f"{path} is gone; not known without it: {point.cost}")
        else:
            patches.set(owner, point.name, point.wrap(before))


def _selecting(put_data: _Coroutine) -> _Coroutine:
    @functools.wraps(put_data)
    async def traced_put_data(self: Any, *args: Any, **kwargs: Any) -> Any:
        operation = OPERATION.get()
        if operation is not None:
            operation.storage_start_ns = monotonic_ns()
        return await put_data(self, *args, **kwargs)

    return traced_put_data


def _requesting(request: _Coroutine) -> _Coroutine:
    @functools.wraps(request)
    async def traced_request(self: Any, *args: Any, **kwargs: Any) -> Any:
        operation = OPERATION.get()
        if operation is None:
            return await request(self, *args, **kwargs)
        start_ns, coded_ns = monotonic_ns(), operation.coded_ns
        if operation.unit_start_ns is None:
            operation.unit_start_ns = start_ns
            if operation.kind == PUT and operation.storage_start_ns is not None:
                operation.select_ns = start_ns - operation.storage_start_ns
        operation.open_units += 1
        try:
            return await request(self, *args, **kwargs)
        finally:
            end_ns = operation.unit_end_ns = monotonic_ns()
            operation.open_units -= 1
            # messages are made and read on the thread that waits: that time is a stage of its own
            operation.unit_ns = end_ns - operation.unit_start_ns - operation.coded_ns
            waited_ns = end_ns - start_ns - (operation.coded_ns - coded_ns)
            unit = str(kwargs.get("target_storage_unit"))
            operation.waits.append((unit, waited_ns))
            if operation.slowest_unit_ns is None or waited_ns > operation.slowest_unit_ns:
                operation.slowest_unit_ns, operation.slowest_unit = waited_ns, unit

    return traced_request


def _serializing(serialize: _Method) -> _Method:
    @functools.wraps(serialize)
    def traced_serialize(self: Any) -> Any:
        operation = OPERATION.get()
        if operation is None or not operation.open_units:
            return serialize(self)
        start_ns = monotonic_ns()
        frames = serialize(self)
        took_ns = monotonic_ns() - start_ns
        operation.coded_ns += took_ns
        if operation.kind == PUT:
            operation.serialize_ns = (operation.serialize_ns or 0) + took_ns
        return frames

    return traced_serialize


def _decoding(deserialize: Any) -> Any:
    read = deserialize.__func__

    @functools.wraps(read)
    def traced_deserialize(cls: Any, frames: Any) -> Any:
        operation = OPERATION.get()
        if operation is None or not operation.open_units:
            return read(cls, frames)
        start_ns = monotonic_ns()
        message = read(cls, frames)
        took_ns = monotonic_ns() - start_ns
        operation.coded_ns += took_ns
        if operation.kind == GET:
            operation.decode_ns = (operation.decode_ns or 0) + took_ns
        return message

    return classmethod(traced_deserialize)


def _packing(get_data: _Coroutine) -> _Coroutine:
    @functools.wraps(get_data)
    async def traced_get_data(self: Any, *args: Any, **kwargs: Any) -> Any:
        data = await get_data(self, *args, **kwargs)
        operation = OPERATION.get()
        if operation is not None and operation.unit_end_ns is not None:
            operation.pack_ns = monotonic_ns() - operation.unit_end_ns
        return data

    return traced_get_data


def _merging(merge: _Method) -> _Method:
    @functools.wraps(merge)
    def traced_merge(self: Any, *args: Any, **kwargs: Any) -> Any:
        operation = OPERATION.get()
        start_ns = monotonic_ns()
        data = merge(self, *args, **kwargs)
        if operation is not None:
            operation.pack_ns = monotonic_ns() - start_ns
        return data

    return traced_merge


def _timing(field: str) -> Callable[[_Coroutine], _Coroutine]:
    def wrap(method: _Coroutine) -> _Coroutine:
        @functools.wraps(method)
        async def timed(self: Any, *args: Any, **kwargs: Any) -> None:
            start_ns = monotonic_ns()
            await method(self, *args, **kwargs)
            operation = OPERATION.get()
            if operation is not None:
                setattr(operation, field, monotonic_ns() - start_ns)

        return timed

    return wrap


POINTS = (
    Point(*_STORAGE, "put_data", "time for select", _selecting),
    Point(*_STORAGE, "get_data", "time for pack", _packing),
    Point(*_STORAGE, "_put_to_single_storage_unit", "time for unit of a put", _requesting),
    Point(*_STORAGE, "_get_from_single_storage_unit", "time for unit of a get", _requesting),
    Point(*_MESSAGE, "serialize", "time for serialize", _serializing),
    Point(*_MESSAGE, "deserialize", "time for decode", _decoding),
    Point(_BASE, "StorageManager", "notify_data_update", "time for notify", _timing("notify_ns")),
    Point(
        _BASE,
        "KVStorageManager",
        "_merge_tensors_to_tensordict",
        "time for pack, of other storages",
        _merging,
    ),
    Point(*_CLIENT, "async_set_custom_meta", "time for tags", _timing("tags_ns")),
)
MODULES = tuple(dict.fromkeys(point.module for point in POINTS))
