"""MFU and HFU: what share of their peak the devices spent on the model, and on everything they multiplied.

Both are sums of FLOPs over sums of time. Above 1 they cannot be true, so the peak, the data type or the count
is wrong: such an interval is suspect, and in no average.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.units import percent
from flagscale_perf.training.columns import Intervals, highest_of, lowest_of, total
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.rates import plus
from flagscale_perf.training.records import IntervalRecord, StepRecord
from flagscale_perf.training.usual import UsualSteps

FLOP_PER_TFLOP = 1e12
_WORK = ("iteration_ns", "model_flops", "hardware_flops")


class Scale(NamedTuple):
    """The numbers by which totals are divided for figures of one device.

    Attributes:
        world_size: devices of the job; None if not known.
        peak_flop_per_s: dense peak of one device; None if not known.
        flop_per_clock: of one device's tensor cores, as in `RunFacts`.
    """

    world_size: int | None
    peak_flop_per_s: float | None
    flop_per_clock: int | None = None

    @classmethod
    def of(cls, facts: RunFacts) -> Scale:
        """Reads a run's facts; values that cannot be divided by count as unknown."""
        return cls(*map(_positive, (facts.world_size, facts.peak_flop_per_s, facts.flop_per_clock)))


class Utilisation(NamedTuple):
    """Shares of 1; None where not known."""

    mfu: float | None
    hfu: float | None

    @property
    def is_suspect(self) -> bool:
        """More than a device can do."""
        return (self.mfu or 0) > 1 or (self.hfu or 0) > 1


class Work(NamedTuple):
    """FLOPs over all devices and the time they took; FLOPs are None once one of the added ones was."""

    elapsed_ns: int = 0
    model_flops: int | None = 0
    hardware_flops: int | None = 0

    @classmethod
    def of(cls, record: StepRecord | IntervalRecord) -> Work:
        """The work of one step or interval."""
        return cls(record.iteration_ns, record.model_flops, record.hardware_flops)

    def plus(self, other: Work) -> Work:
        """The sum of two stretches of work."""
        return Work(
            self.elapsed_ns + other.elapsed_ns,
            plus(self.model_flops, other.model_flops),
            plus(self.hardware_flops, other.hardware_flops),
        )

    def utilisation(self, scale: Scale) -> Utilisation:
        """MFU and HFU of it."""
        return Utilisation(self._share(self.model_flops, scale), self._share(self.hardware_flops, scale))

    def _share(self, flops: int | None, scale: Scale) -> float | None:
        if flops is None or scale.world_size is None or scale.peak_flop_per_s is None or self.elapsed_ns <= 0:
            return None
        return flops / (self.elapsed_ns / NS_PER_S) / scale.world_size / scale.peak_flop_per_s


class TrustedWork:
    """The work of a run without its suspect intervals, in constant memory.

    Attributes:
        intervals: how many there were.
        suspect_intervals: the suspect ones of them.
    """

    def __init__(self, scale: Scale) -> None:
        self._scale = scale
        self._closed = self._open = Work()
        world_size, peak, _ = scale
        self._most_per_ns = None if world_size is None or peak is None else world_size * peak / NS_PER_S
        self.intervals = self.suspect_intervals = 0

    def add_step(self, step: StepRecord) -> None:
        """A step that rates are made of."""
        self._open = self._open.plus(Work.of(step))

    def add_steps(self, iteration_ns: Sequence[int], *flops: Sequence[int | None]) -> None:
        """Several of them; `flops`: of the model, and of the hardware."""
        self._open = self._open.plus(Work(total(iteration_ns) or 0, *map(total, flops)))

    def close(self, interval: IntervalRecord) -> None:
        """The interval that the steps since the last one make up."""
        work = interval.iteration_ns, interval.model_flops, interval.hardware_flops
        self._close(self._is_suspect(*work))

    def _is_suspect(self, dur_ns: int, *flops: int | None) -> bool:
        most_per_ns = self._most_per_ns
        return most_per_ns is not None and 0 < dur_ns * most_per_ns < max(each or 0 for each in flops)

    def _close(self, is_suspect: bool, intervals: int = 1) -> None:
        self.intervals += intervals
        if is_suspect:
            self.suspect_intervals += intervals
        else:
            self._closed = self._closed.plus(self._open)
        self._open = Work()

    def add_usual(self, steps: UsualSteps, intervals: Intervals) -> None:
        """Takes steps, and the intervals that end among them."""
        work, begun = [steps.columns[name] for name in _WORK], 0
        theirs, ends = [intervals[name] for name in _WORK], steps.ends
        least_ns, *most = lowest_of(theirs[0]) if ends else 0, *map(highest_of, theirs[1:])
        if ends and least_ns > 0 and not self._is_suspect(least_ns, *most):
            self.add_steps(*(column[: ends[-1]] for column in work))
            self._close(False, len(ends))
            begun = ends[-1]
        else:
            for end, *known in zip(ends, *theirs, strict=True):
                self.add_steps(*(column[begun:end] for column in work))
                self._close(self._is_suspect(*known))
                begun = end
        self.add_steps(*(column[begun:] for column in work))

    def utilisation(self) -> Utilisation:
        """So far; steps that no interval holds yet are judged as if they were one."""
        doubtful = self._open.utilisation(self._scale).is_suspect
        return (self._closed if doubtful else self._closed.plus(self._open)).utilisation(self._scale)


def left_out(intervals: float | None, suspect: float | None) -> str | None:
    """Of which intervals a mean MFU is, such as `of 2 of 6 intervals, the others are above the peak`; None if
    of all.
    """
    if not suspect or intervals is None:
        return None
    if suspect == intervals:
        return f"all {intervals:,} intervals are above the peak"
    return f"of {intervals - suspect:,} of {intervals:,} intervals, the others are above the peak"


def suspicion(interval: IntervalRecord, facts: RunFacts) -> str | None:
    """One line about an interval above its peak: what is wrong, what to check; None if it is below."""
    scale = Scale.of(facts)
    utilisation = Work.of(interval).utilisation(scale)
    if not utilisation.is_suspect or scale.peak_flop_per_s is None:
        return None
    mfu, hfu = map(percent, utilisation)
    where = f"iterations {interval.first_iteration} to {interval.iteration}"
    peak = f"{scale.peak_flop_per_s / FLOP_PER_TFLOP:g} TFLOP/s ({facts.peak_source})"
    return (
        f"{where}: MFU {mfu}, HFU {hfu} of a peak of {peak}. No device passes its peak: check "
        f"--perf-peak-tflops, the data type ({facts.dtype}), and whether packed documents are counted as "
        "whole sequences. Such intervals are marked and in no average"
    )


def _positive(value: Any) -> Any:
    return value if value is not None and 0 < value < 1e30 else None
