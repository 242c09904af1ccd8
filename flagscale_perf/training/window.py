"""Steps summed into intervals. Memory does not grow with the length of an interval."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

from flagscale_perf.spine.clock import Anchor
from flagscale_perf.training.hardware import HardwareWindow
from flagscale_perf.training.phases import PhaseSums, StepPhases
from flagscale_perf.training.records import HardwareRecord, IntervalRecord, Outcome, StepRecord
from flagscale_perf.training.utilisation import Scale, Work

RESERVOIR_SIZE = 4096


class Reservoir:
    """A bounded sample of a stream of numbers: all of them up to its size, then a uniform choice.

    The choice is seeded, so the same stream gives the same sample: a report rebuilt from the run file equals
    the writer's.
    """

    def __init__(self, size: int = RESERVOIR_SIZE) -> None:
        self._size = size
        self._random = random.Random(0)
        self._kept: list[int] = []
        self._seen = 0
        self.maximum: int | None = None

    def add(self, value: int) -> None:
        """One more number of the stream."""
        self._seen += 1
        if self.maximum is None or value > self.maximum:
            self.maximum = value
        if self._seen <= self._size:
            self._kept.append(value)
        elif (place := int(self._random.random() * self._seen)) < self._size:
            self._kept[place] = value

    def quantile(self, share: float) -> int | None:
        """The smallest number kept that at least `share` of them do not exceed; None before the first."""
        if not self._kept:
            return None
        return sorted(self._kept)[math.ceil(share * len(self._kept)) - 1]


class StepSums:
    """Running sums over train steps; the fields are those of `IntervalRecord`."""

    def __init__(self) -> None:
        self.steps = 0
        self.iteration_ns = self.train_step_ns = self.eval_ns = self.checkpoint_ns = 0
        self.samples = self.tokens = self.skipped_samples = 0
        self.device_ns: int | None = None
        self.model_flops: int | None = None
        self.hardware_flops: int | None = None
        self.self_ns: int | None = None
        self.phases = PhaseSums()
        self.durations = Reservoir()

    def add(self, step: StepRecord, phases: StepPhases | None = None) -> None:
        """Adds a train step; of passed-over data only the skipped samples and the pauses count. `phases` if
        measured.
        """
        self.eval_ns += step.eval_ns
        self.checkpoint_ns += step.checkpoint_ns
        self.skipped_samples += step.skipped_samples
        if step.outcome == Outcome.DATA_SKIPPED:
            return
        first = self.steps == 0
        self.steps += 1
        self.iteration_ns += step.iteration_ns
        self.train_step_ns += step.train_step_ns
        self.samples += step.samples
        self.tokens += step.tokens
        self.device_ns = _sum(self.device_ns, step.device_ns, first)
        self.model_flops = _sum(self.model_flops, step.model_flops, first)
        self.hardware_flops = _sum(self.hardware_flops, step.hardware_flops, first)
        self.self_ns = _sum(self.self_ns, step.self_ns, first)
        if phases is not None:
            self.phases.add(step, phases)
        self.durations.add(step.iteration_ns)

    def totals_with(self, other: StepSums) -> StepTotals:
        """These steps and others together."""
        return StepTotals(
            steps=self.steps + other.steps,
            iteration_ns=self.iteration_ns + other.iteration_ns,
            eval_ns=self.eval_ns + other.eval_ns,
            checkpoint_ns=self.checkpoint_ns + other.checkpoint_ns,
            samples=self.samples + other.samples,
            tokens=self.tokens + other.tokens,
            skipped_samples=self.skipped_samples + other.skipped_samples,
            model_flops=_sum(self.model_flops, other.model_flops, not self.steps)
            if other.steps
            else self.model_flops,
            hardware_flops=_sum(self.hardware_flops, other.hardware_flops, not self.steps)
            if other.steps
            else self.hardware_flops,
        )


class StepTotals(NamedTuple):
    """Sums over train steps, as in `IntervalRecord`."""

    steps: int
    iteration_ns: int
    eval_ns: int
    checkpoint_ns: int
    samples: int
    tokens: int
    skipped_samples: int
    model_flops: int | None
    hardware_flops: int | None


def _sum(total: int | None, value: int | None, first: bool) -> int | None:
    """None once a value was None: a sum with a hole in it is no sum."""
    if first:
        return value
    return None if total is None or value is None else total + value


def end_mono_ns(step: StepRecord) -> int:
    """Monotonic mark of the step's end, which is the next one's start."""
    return step.start_ns + step.iteration_ns + step.eval_ns + step.checkpoint_ns


def skipped_iterations(step: StepRecord) -> int:
    """How many iterations of the record trained nothing."""
    return 0 if step.outcome == Outcome.TRAINED else step.iterations


class _Open:
    """An interval under way."""

    def __init__(self, first: StepRecord) -> None:
        self.first_iteration = first.iteration - first.iterations + 1
        self.start_ns = first.start_ns
        self.last = first
        self.sums, self.warmup = StepSums(), StepSums()
        self.skipped = 0
        self.memory_bytes: int | None = None
        self.memory_peak_bytes: int | None = None
        self.memory_reserved_bytes: int | None = None
        self.memory_retries: int | None = None

    def add(self, step: StepRecord, phases: StepPhases | None) -> None:
        self.last = step
        if step.warmup or step.outcome == Outcome.DATA_SKIPPED:
            self.warmup.add(step, phases)
        if not step.warmup:
            self.sums.add(step, phases)
        self.skipped += skipped_iterations(step)
        if step.memory_bytes is not None:
            self.memory_bytes = step.memory_bytes
        if step.memory_peak_bytes is not None:
            self.memory_peak_bytes = step.memory_peak_bytes
        if step.memory_reserved_bytes is not None:
            self.memory_reserved_bytes = step.memory_reserved_bytes
        if step.memory_retries is not None:
            self.memory_retries = step.memory_retries


class IntervalWindow:
    """Collects steps; hands out an `IntervalRecord` whenever the iteration crosses a multiple of the
    interval.
    """

    def __init__(self, interval: int, anchor: Anchor, scale: Scale) -> None:
        """`interval` in iterations, at least 1; `anchor` of the run's start; `scale` of its devices."""
        self._interval = interval
        self._anchor = anchor
        self._scale = scale
        self._open: _Open | None = None
        self._hardware = HardwareWindow()

    def add_hardware(self, reading: HardwareRecord) -> None:
        """One more reading of the device; before the steps that ended after it."""
        self._hardware.add(reading)

    def add(
        self, step: StepRecord, dropped: int = 0, phases: StepPhases | None = None
    ) -> IntervalRecord | None:
        """One more record, its phases if measured; the interval it completes, if it does. `dropped` as in
        `IntervalRecord`.
        """
        if self._open is None:
            self._open = _Open(step)
        self._open.add(step, phases)
        self._hardware.advance(self._open.start_ns, end_mono_ns(step))
        before = step.iteration - step.iterations
        return self.close(dropped) if step.iteration // self._interval > before // self._interval else None

    def close(self, dropped: int = 0) -> IntervalRecord | None:
        """The interval as far as it has got, and a new one begins; None if nothing is in it."""
        open_, self._open = self._open, None
        if open_ is None:
            return None
        warmup_only = open_.sums.steps == 0 and open_.warmup.steps > 0  # what was passed over is in both
        sums = open_.warmup if warmup_only else open_.sums
        hardware = self._hardware.close()
        utilisation = Work(sums.iteration_ns, sums.model_flops, sums.hardware_flops).utilisation(self._scale)
        phases = sums.phases.over(sums.steps)
        return IntervalRecord(
            iteration=open_.last.iteration,
            first_iteration=open_.first_iteration,
            end_wall_ns=self._anchor.wall_of(end_mono_ns(open_.last)),
            steps=sums.steps,
            skipped_iterations=open_.skipped,
            warmup_only=warmup_only,
            iteration_ns=sums.iteration_ns,
            train_step_ns=sums.train_step_ns,
            device_ns=sums.device_ns,
            eval_ns=sums.eval_ns,
            checkpoint_ns=sums.checkpoint_ns,
            samples=sums.samples,
            tokens=sums.tokens,
            skipped_samples=sums.skipped_samples,
            model_flops=sums.model_flops,
            hardware_flops=sums.hardware_flops,
            mfu=utilisation.mfu,
            hfu=utilisation.hfu,
            iteration_p50_ns=sums.durations.quantile(0.5),
            iteration_p95_ns=sums.durations.quantile(0.95),
            iteration_max_ns=sums.durations.maximum,
            memory_bytes=open_.memory_bytes,
            memory_peak_bytes=open_.memory_peak_bytes,
            memory_reserved_bytes=open_.memory_reserved_bytes,
            memory_retries=open_.memory_retries,
            energy_mj=hardware.energy_mj,
            energy_ns=hardware.energy_ns,
            power_mw=hardware.power_mw,
            sm_clock_mhz=hardware.sm_clock_mhz,
            temperature_c=hardware.temperature_c,
            throttle=hardware.throttle,
            self_ns=sums.self_ns,
            phases_ns=phases.phases_ns,
            bubble_ns=phases.bubble_ns,
            imbalance_ns=phases.imbalance_ns,
            dropped=dropped,
        )
