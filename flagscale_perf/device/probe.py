"""What the current device can tell without being waited for: time between two events, memory, its name."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from flagscale_perf.device.timeline import CudaTimeline, HostTimeline, Timeline

# Events of one train step; handed out by `stop`, read back by `elapsed_ns`.
EventPair = tuple[Any, Any]


class Memory(NamedTuple):
    """One reading of the device's allocator.

    Attributes:
        allocated_bytes, peak_bytes: in tensors, now and at most so far.
        reserved_bytes: taken from the device; None where the allocator does not tell, like retries.
        retries: how often it found no room and had to free its cache.
    """

    allocated_bytes: int
    peak_bytes: int
    reserved_bytes: int | None
    retries: int | None


class DeviceProbe(Protocol):
    """A device as seen from the training thread. No method waits for the device.

    Attributes:
        name: as the driver has it.
        is_present: False for the CPU, which has neither events nor memory of its own.
        uuid: by which another process finds the same device; None without one.
        memory_bytes: all its memory; None without one.
    """

    name: str
    is_present: bool
    uuid: str | None
    memory_bytes: int | None

    def start(self) -> None:
        """Marks the start of a train step on the device's stream."""

    def stop(self) -> EventPair | None:
        """Marks its end. Returns what `elapsed_ns` takes; None where the device has no events."""

    def elapsed_ns(self, pair: EventPair) -> int | None:
        """Device time between the two marks; None while the device has not reached the second."""

    def memory(self) -> Memory | None:
        """What the allocator says now; None where there is none."""

    def timeline(self, mark_ns: int) -> Timeline:
        """What takes the marks of phases by this device's clock; `mark_ns`: the time that the way to a mark
        takes.
        """


class NoDevice:
    """The CPU: no events, no device memory."""

    is_present = False

    def __init__(self, name: str = "CPU") -> None:
        self.name = name
        self.uuid: str | None = None
        self.memory_bytes: int | None = None

    def start(self) -> None:
        """Nothing to mark."""

    def stop(self) -> EventPair | None:
        """No events."""
        return None

    def elapsed_ns(self, pair: EventPair) -> int | None:
        """Never called with a pair of its own."""
        return None

    def memory(self) -> Memory | None:
        """Not known."""
        return None

    def timeline(self, mark_ns: int) -> Timeline:
        """By the host's clock."""
        return HostTimeline(mark_ns)


class CudaProbe:
    """The process's current CUDA device, through torch (2 event records a step, memory from the allocator's
    counters).
    """

    is_present = True

    def __init__(self, cuda: Any) -> None:
        """Args: cuda: the module `torch.cuda`, already initialised by the host."""
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
        """Reads the pair if the device has passed it, and takes it back for the next step."""
        if not pair[1].query():
            return None
        elapsed_ms: float = pair[0].elapsed_time(pair[1])
        self._free.append(pair)
        return round(elapsed_ms * 1e6)

    def memory(self) -> Memory | None:
        """The caching allocator's counters; no synchronise."""
        stats = self._cuda.memory_stats_as_nested_dict()
        allocated = stats.get("allocated_bytes", {}).get("all", {})
        if not allocated:
            return None
        reserved = stats.get("reserved_bytes", {}).get("all", {})
        return Memory(
            allocated["current"], allocated["peak"], reserved.get("current"), stats.get("num_alloc_retries")
        )

    def timeline(self, mark_ns: int) -> Timeline:
        """By events of the current stream."""
        return CudaTimeline(self._cuda, mark_ns)

    def _event(self) -> Any:
        return self._cuda.Event(enable_timing=True)


def current_device(rehearsing: bool) -> DeviceProbe:
    """The probe for this process. `rehearsing`: torch.cuda is a pretence, so there is no device to ask.

    A host that trains on a device has set CUDA up by its first step. Where it has not, asking what is there
    would: memory of every device taken by a context, and children that can no longer fork into CUDA.
    """
    if rehearsing:
        return NoDevice("CPU (rehearsal)")
    import torch

    return CudaProbe(torch.cuda) if torch.cuda.is_initialized() else NoDevice()
