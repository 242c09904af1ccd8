"""The one place that knows TransferQueue's internals: what its functions, their arguments and their parts are
called. What it sees goes to `trace.plane`. Read from 0.1.11 and from the main branch after it, whose payloads
go through transports of their own, whose requests are made again, and which merges values in place.

Most of these are no public names. One that is gone, or takes other arguments, costs what it shows: that is
unknown then, and said by name in the run file, on stderr and by `doctor`.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from flagscale_perf.hosts.patching import Patches
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.packages import versions
from flagscale_perf.trace import plane
from flagscale_perf.trace import tracer as tracing
from flagscale_perf.trace.options import TraceOptions
from flagscale_perf.trace.plane import Run
from flagscale_perf.trace.records import Kind

PACKAGE, NEWEST = "TransferQueue", (0, 1, 12)  # read up to here
MODULE, CLIENT = "transfer_queue.client", "AsyncTransferQueueClient"
OPERATIONS = "operations at all"
_BASE = "transfer_queue.storage.managers.base"
_STORAGE = "transfer_queue.storage.managers.simple_storage_manager", "AsyncSimpleStorageManager"
_MESSAGE = "transfer_queue.utils.zmq_utils", "ZMQMessage"
_TRANSPORTS = "transfer_queue.storage.payload_transfer"
_ZMQ, _NIXL = f"{_TRANSPORTS}.zmq", f"{_TRANSPORTS}.nixl"
_MERGE, _UNIT = "_merge_tensors_to_tensordict", ("target_storage_unit",)
_FETCH = "fetch"  # `mode` of a consumer's request; puts ask, too: for room
_Said = dict[str, Any]  # arguments of a call, by name
_Wrap = Callable[[Any], Any]


def _awaited(handle: Callable[[Run, _Said], Awaitable[Any]]) -> _Wrap:
    """Hands each call of a coroutine to `handle`, while anything is traced."""

    def wrap(method: Callable[..., Awaitable[Any]]) -> Any:
        names = tuple(inspect.signature(method).parameters)

        @functools.wraps(method)
        async def traced(*args: Any, **kwargs: Any) -> Any:
            if tracing.active is None:
                return await method(*args, **kwargs)
            said = dict(zip(names, args, strict=False)) | kwargs
            return await handle(functools.partial(method, *args, **kwargs), said)

        return traced

    return wrap


def _operated(kind: Kind, batch: str, data: str = "", partition: str = "") -> _Wrap:
    """Each call of a coroutine is an operation; the names of those of its arguments that are read."""

    def wrap(method: Callable[..., Awaitable[Any]]) -> Any:
        names = tuple(inspect.signature(method).parameters)

        def read(args: tuple[Any, ...], kwargs: _Said) -> tuple[Any, str, Any]:
            said = dict(zip(names, args)) | kwargs  # noqa: B905  # `strict` costs as much as the rest
            return said.get(batch), said.get(partition) or "", said.get(data)

        return plane.operated(kind, read)(method)

    return wrap


def _part(begin: Callable[[], Any], end: Callable[[Any], None]) -> _Wrap:
    """Tells where a part of an operation, a coroutine, function or class method, begins and is done."""

    def wrap(given: Any) -> Any:
        function = getattr(given, "__func__", given)

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            begun = begin()
            found = await function(*args, **kwargs)
            end(begun)
            return found

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            begun = begin()
            found = function(*args, **kwargs)
            end(begun)
            return found

        traced = awaited if inspect.iscoroutinefunction(function) else called
        return classmethod(traced) if isinstance(given, classmethod) else traced

    return wrap


def _ask(method: Callable[..., Awaitable[Any]]) -> Any:
    """A request to a unit, which is named by one of two arguments, always as a keyword."""

    @functools.wraps(method)
    async def traced(*args: Any, **kwargs: Any) -> Any:
        request = plane.asking()
        try:
            return await method(*args, **kwargs)
        finally:
            plane.asked(request, kwargs.get("target_storage_unit") or kwargs.get("target_id"))

    return traced


def _wait(run: Run, said: _Said) -> Awaitable[Any]:
    if said.get("mode", _FETCH) != _FETCH:
        return run()
    names = [str(said.get(name) or "") for name in ("partition_id", "task_name")]
    return plane.wait(run, names[0], names[1], said.get("batch_size"))


def _clear(run: Run, said: _Said) -> Awaitable[Any]:
    partition = said.get("partition_id")
    return plane.clear(run, None if partition is None else str(partition), said.get("metadata"))


def _mark(run: Run, said: _Said) -> Awaitable[Any]:
    plane.clearing(said.get("metadata"))
    return run()


async def _keys(run: Run, said: _Said) -> Any:
    batch = await run()
    if said.get("create"):
        plane.keyed(said["keys"], batch)
    return batch


def _stamp(run: Run, said: _Said) -> Awaitable[Any]:
    plane.tagging(said.get("metadata"))
    return run()


_PUT = _operated(Kind.PUT, "metadata", "data", "partition_id")
_GET, _UPDATE = _operated(Kind.GET, "metadata"), _operated(Kind.UPDATE, "metadata", "values")
_STORES = _part(plane.storing, plane.stored)
_NOTIFIES, _TAGS, _PACKS = (
    _part(monotonic_ns, functools.partial(plane.timed, field=f"{stage}_ns"))
    for stage in ("notify", "tags", "pack")
)
_ENCODES, _DECODES = (
    _part(plane.coding, functools.partial(plane.coded, kind=int(kind))) for kind in (Kind.PUT, Kind.GET)
)


@dataclass(frozen=True)
class Point:
    """One part of the queue that is wrapped.

    Attributes:
        module, owner, name: where it is; no owner for a function of the module.
        cost: what is not known without it.
        wrap: makes the traced one of it.
        reads: its arguments that are looked at.
        is_new: not in every version that is known, so that nothing is said where it is missing.
        when: option of the tracer without which it is left alone.
    """

    module: str
    owner: str
    name: str
    cost: str
    wrap: _Wrap
    reads: tuple[str, ...] = ()
    is_new: bool = False
    when: str = "detail"

    @property
    def path(self) -> str:
        """Its full name."""
        return ".".join(filter(None, (self.module, self.owner, self.name)))

    def is_in(self, members: set[str]) -> bool:
        """Whether it is among the functions and methods of its module, as `members_of` reads them."""
        return ".".join(filter(None, (self.owner, self.name))) in members

    def place_in(self, module: ModuleType) -> tuple[Any, Any]:
        """Its owner there, and the function as it is: None without one, or if it takes other arguments."""
        owner = getattr(module, self.owner, None) if self.owner else module
        found = None if owner is None else vars(owner).get(self.name)
        if found is None or not self.reads:
            return owner, found
        taken = inspect.signature(getattr(found, "__func__", found)).parameters
        return owner, found if all(name in taken for name in self.reads) else None


_C = MODULE, CLIENT
_CLEARED, _UNIT_OF = "which samples are cleared", "time for unit of {}"
_META, _PARTITION, _NAMES = ("metadata",), ("partition_id",), ("task_name", "batch_size", "mode")
POINTS = (
    Point(*_C, "async_put", OPERATIONS, _PUT, ("data", *_META, *_PARTITION), when=""),
    Point(*_C, "async_get_data", OPERATIONS, _GET, _META, when=""),
    Point(*_STORAGE, "update_data", "updates", _UPDATE, (*_META, "values"), is_new=True, when=""),
    Point(*_C, "async_clear_samples", _CLEARED, _awaited(_clear), _META),
    Point(*_C, "async_clear_partition", _CLEARED, _awaited(_clear), _PARTITION),
    # Is given the samples of a partition that is cleared:
    Point(*_C, "_mark_clearing_in_controller", _CLEARED, _awaited(_mark), _META),
    Point(*_C, "async_get_meta", "how long consumers wait", _awaited(_wait), (*_PARTITION, *_NAMES)),
    Point(*_C, "async_kv_retrieve_meta", "keys", _awaited(_keys), ("keys", "create"), when="keys"),
    Point(*_STORAGE, "put_data", "time for select", _STORES),
    Point(*_STORAGE, "get_data", "time for pack", _STORES),
    *(
        Point(*_STORAGE, f"_{name}_single_storage_unit", _UNIT_OF.format(what), _ask, _UNIT, is_new)
        for name, what, is_new in (
            *(("put_to", "a put", False), ("get_from", "a get", False)),
            ("update_to", "an update", True),
        )
    ),
    *(  # the same, within these, by transports of their own
        Point(module, owner, name, _UNIT_OF.format(f"a {name}"), _ask, ("target_id",), is_new=True)
        for module, owner in ((_ZMQ, "ZmqPayloadTransfer"), (_NIXL, "NixlPayloadTransfer"))
        for name in ("put", "get")
    ),
    Point(*_MESSAGE, "serialize", "time for serialize", _ENCODES),
    Point(*_MESSAGE, "deserialize", "time for decode", _DECODES),
    Point(_NIXL, "", "encode", "time for serialize, by NIXL", _ENCODES, is_new=True),
    Point(_NIXL, "", "decode", "time for decode, by NIXL", _DECODES, is_new=True),
    Point(_BASE, "StorageManager", "notify_data_update", "time for notify", _NOTIFIES),
    Point(_BASE, "KVStorageManager", _MERGE, "time for pack, of other storages", _PACKS),
    Point(*_C, "async_set_custom_meta", "time for tags", _TAGS),
    Point(*_C, "async_set_custom_meta", "trace ids of samples", _awaited(_stamp), _META, when="stamp"),
)
MODULES = tuple(dict.fromkeys(point.module for point in POINTS))
# What the client can do besides, which moves no samples. Anything else may move some.
_ASKS = {
    *("async_set_custom_meta", "async_get_consumption_status", "async_get_production_status"),
    *("async_check_consumption_status", "async_check_production_status", "async_reset_consumption"),
    *("async_get_partition_list", "async_kv_retrieve_keys", "async_kv_list"),
    *(f"async_{verb}_{what}_checkpoint" for verb in ("save", "load") for what in ("controller", "storage")),
}


def patch(module: ModuleType, patches: Patches, options: TraceOptions) -> list[str]:
    """Wraps what a module of the queue has of the points, for all clients, those that are there included.
    Returns what is not known in this version.
    """
    unknown = []
    for point in POINTS:
        if point.module != module.__name__ or (point.when and not getattr(options, point.when)):
            continue
        owner, found = point.place_in(module)
        if found is not None:
            patches.set(owner, point.name, point.wrap(found))
        elif not point.is_new or hasattr(owner, point.name):
            unknown.append(
                f"{point.path} is gone or takes other arguments; not known without it: {point.cost}"
            )
    if module.__name__ == MODULE:
        unknown += strangers(vars(getattr(module, CLIENT, object)))
        _bind_again(module)
    return unknown


def strangers(names: Iterable[str]) -> list[str]:
    """Of the client's members: methods that no known version has, and that may move samples; and the version,
    where it is newer than those.
    """
    known = {point.name for point in POINTS if point.owner == CLIENT} | _ASKS
    found = sorted(name for name in names if name.startswith("async_") and name not in known)
    said = [f"{CLIENT}.{name} is not known: what it moves may not be counted" for name in found]
    version = versions((PACKAGE,)).get(PACKAGE, "")
    numbers = [int(part) for part in version.split(".")[:3] if part.isdecimal()]
    newer = [f"{PACKAGE} {version} is newer than what is known: see `flagscale-perf doctor`"]
    return said + (newer if tuple(numbers) > NEWEST else [])


def _bind_again(module: ModuleType) -> None:
    """Live clients took their synchronous methods from the class when they were made; they take them anew."""
    client = getattr(module, CLIENT, ())
    for each in gc.get_objects():
        if issubclass(type(each), client) and hasattr(each, "_bind_sync_methods"):
            with contextlib.suppress(Exception):  # one that is being made, or was closed: it has none to take
                each._bind_sync_methods()


def bind_again_after_undo() -> None:
    """Gives live clients the class's own methods back, once the wrappers are off."""
    if (module := sys.modules.get(MODULE)) is not None:
        _bind_again(module)
