"""Fragmentation of the device's memory, and a forecast of when it will run out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from flagscale_perf.spine.averages import median
from flagscale_perf.spine.chance import rise_of
from flagscale_perf.training.columns import highest_of
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.rates import as_gb, highest
from flagscale_perf.training.records import StepRecord
from flagscale_perf.training.usual import UsualSteps

TREND_READINGS = 32
MIN_READINGS = 8
MIN_RISE = 3.3  # standard deviations: peaks that only vary seem to grow in 1 of 2000 runs
MAX_FORECAST = 1_000_000_000
MAX_DEVICE_BYTES = 1 << 60


def fragmentation(allocated_bytes: int | None, reserved_bytes: int | None) -> float | None:
    """Share of what the allocator holds of the device that is in no tensor: its cache and the gaps."""
    if allocated_bytes is None or not reserved_bytes or not 0 <= allocated_bytes <= reserved_bytes:
        return None
    return (reserved_bytes - allocated_bytes) / reserved_bytes


@dataclass(frozen=True)
class MemorySummary:
    """Memory of rank 0's device. `alloc_retries`: since the process began. `fragmentation`: last reading."""

    device_gb: float | None
    reserved_peak_gb: float | None
    fragmentation: float | None
    alloc_retries: int | None
    out_of_memory_in_steps: int | None


class MemoryTotals:
    """The readings of a run, in bounded memory."""

    def __init__(self, facts: RunFacts) -> None:
        """`facts` of the run; without `device_memory_bytes` there is no forecast."""
        size_bytes = facts.device_memory_bytes or 0
        self._device_bytes = size_bytes if 0 < size_bytes < MAX_DEVICE_BYTES else None
        self._trend: deque[tuple[int, int]] = deque(maxlen=TREND_READINGS)
        self._last: StepRecord | None = None
        self._reserved_peak: int | None = None

    def add(self, step: StepRecord) -> None:
        """The next step; without a reading it changes nothing."""
        if step.memory_peak_bytes is None:
            return
        self._trend.append((step.iteration, step.memory_peak_bytes))
        self._last = step
        if step.memory_reserved_bytes is not None:
            self._reserved_peak = max(self._reserved_peak or 0, step.memory_reserved_bytes)

    def add_usual(self, steps: UsualSteps) -> None:
        """Takes steps together, as `add` takes one."""
        iterations, peaks = steps.columns["iteration"], steps.columns["memory_peak_bytes"]
        known: Sequence[int] = range(len(steps))
        if None in peaks:
            known = [number for number in known if peaks[number] is not None]
        if not known:
            return
        self._trend.extend((iterations[number], peaks[number]) for number in known[-TREND_READINGS:])
        self._last = steps.one(known[-1])
        reserved = steps.columns["memory_reserved_bytes"]
        if len(known) < len(steps):
            reserved = [reserved[number] for number in known]
        self._reserved_peak = highest(self._reserved_peak, highest_of(reserved))

    def steps_left(self) -> int | None:
        """Iterations until the peak reaches the device's memory; None while it does not grow.

        The growth is the median of the slopes between any two of the last `TREND_READINGS` readings, so
        single jumps do not count, and a growth that chance explains is none. It assumes that this growth goes
        on and that nothing but the allocator needs memory: the true end comes earlier.
        """
        if self._device_bytes is None or len(self._trend) < MIN_READINGS:
            return None
        if rise_of([peak_bytes for _, peak_bytes in self._trend]) < MIN_RISE:
            return None
        slopes = [(y - x) / (j - i) for (i, x), (j, y) in combinations(self._trend, 2) if i != j]
        growth = median(slopes) if slopes else 0.0
        if growth <= 0:
            return None
        left = max(0.0, (self._device_bytes - self._trend[-1][1]) / growth)
        return int(left) if left < MAX_FORECAST else None

    def result(self) -> MemorySummary:
        """The summary of the readings so far."""
        last = self._last
        share = None if last is None else fragmentation(last.memory_bytes, last.memory_reserved_bytes)
        return MemorySummary(
            device_gb=as_gb(self._device_bytes),
            reserved_peak_gb=as_gb(self._reserved_peak),
            fragmentation=share,
            alloc_retries=None if last is None else last.memory_retries,
            out_of_memory_in_steps=self.steps_left(),
        )
