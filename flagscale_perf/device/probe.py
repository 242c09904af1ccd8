"""The current device, without ever waiting for it: times between events, memory, name."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from flagscale_perf.device.timeline import CudaTimeline, HostTimeline, Timeline

# The events at the start and the end of a train step: from `stop`, for `elapsed_ns`.
EventPair = tuple[Any, Any]


class Memory(NamedTuple):
    """One reading of the device's allocator.

    Attributes:
        allocated_bytes, peak_bytes: in tensors, now and at most so far.
        reserved_bytes: taken from the device; None, like retries, where the allocator does not count it.
        retries: how often it found no room and had to free its cache.
    """

    allocated_bytes: int
    peak_bytes: int
    reserved_bytes: int | None
    retries: int | None


class DeviceProbe(Protocol):
    """A device as seen from the training thread. No method waits for the device.

    Attributes:
        name: by the driver.
        is_present: False for the CPU, which has neither events nor memory of its own.
        uuid: by which another process finds the same device; None if the device has none.
        memory_bytes: all its memory; None without a device.
    """

    name: str
    is_present: bool
    uuid: str | None
    memory_bytes: int | None

    def start(self) -> None:
        """Marks the start of a train step on the device's stream."""

    def stop(self) -> EventPair | None:
        """Marks the step's end. Returns what `elapsed_ns` takes; None where there are no events."""

    def elapsed_ns(self, pair: EventPair) -> int | None:
        """Device time between the two marks; None while the device has not reached the second."""

    def memory(self) -> Memory | None:
        """The allocator's counters now; None without one."""

    def timeline(self, mark_ns: int) -> Timeline:
        """Takes the marks of phases, on this device's clock; `mark_ns`: cost of one call of its `mark`."""


class NoDevice:
    """The CPU, which has neither events nor memory of its own."""

    is_present = False

    def __init__(self, name: str = "CPU") -> None:
        self.name = name
        self.uuid: str | None = None
        self.memory_bytes: int | None = None

    def start(self) -> None:
        """Does nothing: there are no device events."""

    def stop(self) -> EventPair | None:
        """Always None: there are no device events."""
        return None

    def elapsed_ns(self, pair: EventPair) -> int | None:
        """Always None; `stop` returns no pair to ask for."""
        return None

    def memory(self) -> Memory | None:
        """Always None: the CPU has no allocator to ask."""
        return None

    def timeline(self, mark_ns: int) -> Timeline:
        """Uses the host's clock."""
        return HostTimeline(mark_ns)


class CudaProbe:
    """The process's current CUDA device, through torch: two events a step, and the allocator's counters."""

    is_present = True

    def __init__(self, cuda: Any) -> None:
        """`cuda`: the module `torch.cuda`, already initialised by the host."""
        self._cuda = cuda
        self._free: list[EventPair] = []
        self._open: EventPair | None = None
        self.name: str = cuda.get_device_name()
        properties = cuda.get_device_properties(cuda.current_device())
        uuid = getattr(properties, "uuid", None)  # torch before 2.4 has none
        self.uuid: str | None = None if uuid is None else str(uuid)
        self.memory_bytes: int | None = properties.total_memory

    def start(self) -> None:
        """Records the first event on the current stream."""
        self._open = self._free.pop() if self._free else (self._event(), self._event())
        self._open[0].record()

    def stop(self) -> EventPair | None:
        """Records the second event on the current stream."""
        pair, self._open = self._open, None
        if pair is not None:
            pair[1].record()
        return pair

    def elapsed_ns(self, pair: EventPair) -> int | None:
        """Reads the pair once the device has passed it, and keeps its events for a later step."""
        if not pair[1].query():
            return None
        elapsed_ms: float = pair[0].elapsed_time(pair[1])
        self._free.append(pair)
        return round(elapsed_ms * 1e6)

    def memory(self) -> Memory | None:
        """Read from the caching allocator, which keeps these counters on the host."""
        stats = self._cuda.memory_stats_as_nested_dict()
        allocated = stats.get("allocated_bytes", {}).get("all", {})
        if not allocated:
            return None
        reserved = stats.get("reserved_bytes", {}).get("all", {})
        return Memory(
            allocated["current"], allocated["peak"], reserved.get("current"), stats.get("num_alloc_retries")
        )

    def timeline(self, mark_ns: int) -> Timeline:
        """Uses the device's clock, by events on the current stream."""
        return CudaTimeline(self._cuda, mark_ns)

    def _event(self) -> Any:
        return self._cuda.Event(enable_timing=True)


def current_device(rehearsing: bool) -> DeviceProbe:
    """The probe for this process. `rehearsing`: torch.cuda calls land on the CPU, so there is no device.

    CUDA is asked only if the host has initialised it, as one that trains on a device has by now. Asking would
    initialise it: a context takes memory of the device, and forked children can no longer use CUDA.
    """
    if rehearsing:
        return NoDevice("CPU (rehearsal)")
    import torch

    return CudaProbe(torch.cuda) if torch.cuda.is_initialized() else NoDevice()
