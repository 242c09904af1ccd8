"""The one place that knows the names of torch's profiler: a session, its raw events, and their ranges."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.autograd import profiler as torch_profiler

from flagscale_perf.profile.events import NOTHING, Allocations, Events, Inputs, Ints, Kernels
from flagscale_perf.spine.clock import Anchor

MEMORY = "[memory]"
# Private names of torch -> what is worse without one.
PRIVATE = {
    "_C._profiler._RecordFunctionFast": "the range of a module costs more than twice as much",
    "_C._profiler._ExperimentalConfig": "on a device, groups and sizes of collectives are not known",
    "autograd._profiler_enabled": "another profiler is noticed in fewer cases",
}
_HOST_ACTIVITIES = frozenset({"cpu_op", "user_annotation"})
_ANNOTATION = "gpu_user_annotation"
_AT_ONCE = 10_000  # events that are read while no other thread runs: a few ms
# around a block; the public one does the same at twice the cost
Range: Callable[[str], Any] = getattr(
    torch._C._profiler, "_RecordFunctionFast", torch_profiler.record_function
)


def missing_names() -> dict[str, str]:
    """The names in `PRIVATE` that this torch lacks."""
    return {f"torch.{name}": cost for name, cost in PRIVATE.items() if _find(name) is None}


def _find(name: str) -> Any:
    found: Any = torch
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def is_running() -> bool:
    """Whether any torch profiler runs in this process: a second one would take its events away."""
    enabled: Any = getattr(torch.autograd, "_profiler_enabled", None)
    if enabled is None:  # the public profiler alone
        enabled = partial(getattr, torch_profiler, "_is_profiler_enabled", False)
    return bool(enabled())


def has_device() -> bool:
    """Whether this process uses a CUDA device; false for one that a rehearsal emulates."""
    is_built = (torch.version.cuda or torch.version.hip) is not None
    return bool(is_built and torch.cuda.is_available() and torch.cuda.is_initialized())


class Session:
    """One profiled step: `start`, the step, `stop`, and later `events`, on any thread."""

    def __init__(self, shapes: bool = False, memory: bool = False) -> None:
        device = has_device()
        self._profile: Any = torch_profiler.profile(
            use_kineto=True,
            use_device="cuda" if device else None,
            record_shapes=shapes,
            profile_memory=memory,
            **_experimental(device),
        )
        self._device = device
        self._shapes, self._memory = shapes, memory
        self._anchor = Anchor.now()
        self._raw: list[Any] = []
        self._columns: Events | None = None
        self._is_started = False

    def start(self) -> None:
        """Starts recording. Raises RuntimeError if another profiler runs."""
        if is_running():
            raise RuntimeError("another profiler runs")
        self._profile.__enter__()
        self._is_started = True
        self._anchor = Anchor.now()

    def stop(self) -> int:
        """Stops recording and returns the number of events. Waits for the device, as torch's profiler does:
        the kernels launched belong to the step.
        """
        if not self._is_started:
            return 0
        self._profile.__exit__(None, None, None)
        self._raw = self._profile.kineto_results.events()
        return len(self._raw)

    @property
    def is_read(self) -> bool:
        """Whether its events have been turned into columns and torch's own memory of them released."""
        return self._columns is not None

    def read(self, most: int) -> None:
        """Turns the events into columns, a thirtieth of the memory; `events` returns them later."""
        self._columns = self.events(most)

    def events(self, most: int) -> Events:
        """The first `most` events of the host, and what belongs to them. May be called once; returns the
        result of `read` if that was called.
        """
        columns, self._columns = self._columns, None
        if columns is not None:
            return columns
        raw, self._raw = self._raw, []
        self._profile = None  # half of what torch keeps of each event, which is not needed any more
        offset = self._anchor.wall_ns - self._anchor.mono_ns
        events = _Reader(raw, offset, self._device, self._shapes, self._memory).read(most)
        while raw:  # freeing a million of them at once would hold other threads up for most of a second
            del raw[-_AT_ONCE:]
        return events


def _experimental(device: bool) -> dict[str, Any]:
    """The option that records a collective's group and sizes, if torch has it; only NCCL fills it."""
    with contextlib.suppress(ImportError, TypeError):
        from torch._C._profiler import _ExperimentalConfig

        if device:
            return {"experimental_config": _ExperimentalConfig(expose_kineto_event_metadata=True)}
    return {}


class _Reader:
    def __init__(self, raw: list[Any], offset: int, device: bool, shapes: bool, memory: bool) -> None:
        self._offset = offset
        self._device, self._shapes, self._memory = device, shapes, memory
        self._kernels: list[Any] = []
        self._allocations: list[Any] = []
        if device or memory:
            raw = self._sorted_out(raw)
        self._raw = raw

    def _sorted_out(self, raw: list[Any]) -> list[Any]:
        """The events of the host; kernels and allocations go to lists of their own."""
        host, cpu = [], torch._C._autograd.DeviceType.CPU
        for event in raw:
            if event.device_type() != cpu:
                self._kernels.append(event)
            elif event.name() == MEMORY:
                self._allocations.append(event)
            else:
                host.append(event)
        return host

    def read(self, most: int) -> Events:
        raw = self._raw
        if self._device:  # calls of CUDA's own are part of the operator they are in
            raw = [event for event in raw if event.activity_type() in _HOST_ACTIVITIES]
        start_ns = _column(raw, "start_ns")
        order = np.argsort(start_ns, kind="stable")  # of two with one start, the one that was begun first
        dropped = max(0, len(order) - most)
        if dropped or (np.diff(order) != 1).any():
            order = order[:most]
            raw, start_ns = [raw[index] for index in order.tolist()], start_ns[order]
        names, name = _named(raw)
        kernels = self._read_kernels(raw) if self._device else None
        sequence = _column(raw, "sequence_nr")
        return Events(
            names=names,
            name=name.astype(np.int32),
            start_ns=start_ns - self._offset,
            duration_ns=_column(raw, "duration_ns"),
            thread=_column(raw, "start_thread_id"),
            scope=_column(raw, "scope").astype(np.int8),
            sequence=sequence,
            forward_thread=_forward_threads(raw, sequence),
            is_async=_column(raw, "is_async") > 0,
            device_ns=_device_times(kernels, len(raw)),
            metadata=_metadata(raw) if self._device else {},
            kernels=kernels,
            allocations=self._read_allocations() if self._memory else None,
            inputs=_inputs(raw) if self._shapes else None,
            dropped=dropped,
        )

    def _read_kernels(self, raw: list[Any]) -> Kernels:
        launched_by = {event.correlation_id(): index for index, event in enumerate(raw)}
        kernels = [
            kernel
            for kernel in self._kernels  # but for ranges of the host that Kineto also shows on the device
            if not kernel.is_user_annotation() and kernel.activity_type() != _ANNOTATION
        ]
        kernels.sort(key=lambda kernel: kernel.start_ns())
        names, name = _named(kernels)
        launches = _column(kernels, "linked_correlation_id").tolist()
        return Kernels(
            names=names,
            name=name,
            start_ns=_column(kernels, "start_ns") - self._offset,
            duration_ns=_column(kernels, "duration_ns"),
            event=np.array([launched_by.get(launch, NOTHING) for launch in launches], np.int64),
            stream=_column(kernels, "device_resource_id"),
        )

    def _read_allocations(self) -> Allocations:
        changes = sorted(self._allocations, key=lambda event: event.start_ns())
        return Allocations(
            start_ns=_column(changes, "start_ns") - self._offset,
            size_bytes=_column(changes, "nbytes"),
            thread=_column(changes, "start_thread_id"),
        )


def _device_times(kernels: Kernels | None, count: int) -> Ints:
    if kernels is None:
        return np.full(count, NOTHING, np.int64)
    times = np.zeros(count, np.int64)
    known = kernels.event >= 0
    np.add.at(times, kernels.event[known], kernels.duration_ns[known])
    return times


def _metadata(raw: list[Any]) -> Mapping[int, Mapping[str, Any]]:
    found = {}
    for index, event in enumerate(raw):
        if event.name() == "record_param_comms" and (text := event.metadata_json()):
            with contextlib.suppress(ValueError):
                found[index] = json.loads(text if text.lstrip().startswith("{") else "{" + text + "}")
    return found


def _inputs(raw: list[Any]) -> Inputs:
    return Inputs(
        shapes=[event.structured_input_shapes() for event in raw],
        dtypes=[event.dtypes() for event in raw],
        values=[event.concrete_inputs() for event in raw],
    )


class _Numbers(dict[str, int]):
    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number


def _named(raw: Sequence[Any]) -> tuple[list[str], Ints]:
    """Distinct names in the order of first use, and the index of each event's name among them."""
    numbers = _Numbers()
    index = _column(raw, "name", numbers.__getitem__)
    return list(numbers), index


def _column(raw: Sequence[Any], name: str, number: Callable[[Any], int] | None = None) -> Ints:
    """Calls this method of each event; returns the numbers. No bytecode runs between events, which would take
    as long again; but other threads, which wait for that, get their turn every few ms.
    """
    made = np.empty(len(raw), np.int64)
    for begin in range(0, len(raw), _AT_ONCE):
        part = raw[begin : begin + _AT_ONCE]
        values = map(getattr(type(part[0]), name), part)
        made[begin : begin + len(part)] = np.fromiter(
            values if number is None else map(number, values), np.int64, len(part)
        )
    return made


def _forward_threads(raw: Sequence[Any], sequence: Ints) -> Ints:
    """The thread of each event's forward operator; 0 for events without a sequence number."""
    numbered = np.flatnonzero(sequence >= 0)
    made = np.zeros(len(raw), np.int64)
    made[numbered] = _column([raw[index] for index in numbered.tolist()], "fwd_thread_id")
    return made
