"""Steps summed into intervals. Memory does not grow with the length of an interval."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.units import as_ms
from flagscale_perf.training.curves import CurveWindow
from flagscale_perf.training.hardware import HardwareWindow
from flagscale_perf.training.host import HostRecord, HostWindow
from flagscale_perf.training.phases import PhaseSums, StepPhases, Waits
from flagscale_perf.training.rates import Rates, known_tokens, mean_ms, per_second, plus, tflops_per_gpu
from flagscale_perf.training.records import CurveRecord, HardwareRecord, IntervalRecord, Outcome, StepRecord
from flagscale_perf.training.samples import Reservoir
from flagscale_perf.training.usual import UsualSteps
from flagscale_perf.training.utilisation import Scale, Utilisation, Work

# What a step and an interval call alike: summed, or for memory the last that is known.
_SHARED = [field.name for field in fields(IntervalRecord) if field.name in StepRecord._fields[1:]]
_LAST = [name for name in _SHARED if name.startswith("memory_")]
_SUMMED = [name for name in _SHARED if name not in _LAST]
_OF_SKIPPED_DATA = ["eval_ns", "checkpoint_ns", "skipped_samples"]
_UNKNOWN = [name for name in _SUMMED if "None" in str(StepRecord.__annotations__[name])]  # may be None
_KNOWN = [name for name in _SUMMED if name not in _UNKNOWN]
# By place: a name costs twice as much to look up, and every step of a run file comes through here.
_KNOWN_AT, _UNKNOWN_AT, _LAST_AT = (
    [(name, StepRecord._fields.index(name)) for name in names] for names in (_KNOWN, _UNKNOWN, _LAST)
)
_DATA_SKIPPED = int(Outcome.DATA_SKIPPED)


class StepSums:
    """Running sums over train steps: of every field that `StepRecord` and `IntervalRecord` call alike, memory
    aside.

    Attributes:
        phases: of the steps whose phases were measured.
        durations: a sample of `iteration_ns`.
    """

    iteration_ns: int
    eval_ns: int
    checkpoint_ns: int
    samples: int
    tokens: int
    skipped_samples: int
    model_flops: int | None
    hardware_flops: int | None
    self_ns: int | None

    def __init__(self) -> None:
        self.steps = 0
        self.phases = PhaseSums()
        self.durations = Reservoir()
        vars(self).update(dict.fromkeys(_KNOWN, 0) | dict.fromkeys(_UNKNOWN))

    def add(self, step: StepRecord, phases: StepPhases | None = None) -> None:
        """Adds a step, and its phases if measured; of passed-over data only samples and pauses count."""
        sums, steps = vars(self), self.steps
        if step.outcome == _DATA_SKIPPED:
            for name in _OF_SKIPPED_DATA:
                sums[name] += getattr(step, name)
            return
        for name, place in _KNOWN_AT:
            sums[name] += step[place]
        for name, place in _UNKNOWN_AT:
            value = step[place]
            if value is None or not steps:
                sums[name] = value
            elif sums[name] is not None:
                sums[name] += value
        self.steps = steps + 1
        if phases is not None:
            self.phases.add(step, phases)
        self.durations.add(step.iteration_ns)

    def add_usual(self, steps: UsualSteps, waits: Waits) -> None:
        """Adds steps with their phases."""
        sums = vars(self)
        for name in _KNOWN:
            sums[name] += steps.sum(name)
        for name in _UNKNOWN:
            sums[name] = plus(sums[name], steps.total(name)) if self.steps else steps.total(name)
        self.steps += len(steps)
        self.phases.add_usual(steps, waits)
        self.durations.add_many(steps.columns["iteration_ns"])

    def with_steps_of(self, other: StepSums) -> StepSums:
        """The sums of both; phases and durations aside."""
        both, one = StepSums(), self if self.steps else other
        both.steps = self.steps + other.steps
        for name in _KNOWN:
            setattr(both, name, getattr(self, name) + getattr(other, name))
        for name in _UNKNOWN:
            known = plus(getattr(self, name), getattr(other, name))
            setattr(both, name, known if self.steps and other.steps else getattr(one, name))
        return both

    def utilisation(self, scale: Scale) -> Utilisation:
        """MFU and HFU of these steps."""
        return Work(self.iteration_ns, self.model_flops, self.hardware_flops).utilisation(scale)

    def rates(self, scale: Scale) -> Rates:
        """The rates of these steps, on the run's devices."""
        return Rates(
            tflops_per_gpu(self.model_flops, self.iteration_ns, scale.world_size),
            per_second(known_tokens(self.tokens, self.samples), self.iteration_ns),
            per_second(self.samples, self.iteration_ns),
            *self.utilisation(scale),
            mean_ms(self.iteration_ns, self.steps),
            as_ms(self.durations.quantile(0.5)),
            as_ms(self.durations.quantile(0.95)),
        )

    def by_name(self) -> dict[str, Any]:
        """Every sum by its field's name."""
        return {name: getattr(self, name) for name in _SUMMED}


def end_mono_ns(step: StepRecord) -> int:
    """Monotonic mark of the step's end, which is the next one's start."""
    return step.start_ns + step.iteration_ns + step.eval_ns + step.checkpoint_ns


def _trained_ns(step: StepRecord) -> tuple[int, int] | None:
    is_other = step.warmup or step.outcome == Outcome.DATA_SKIPPED
    return None if is_other else (step.start_ns, step.start_ns + step.iteration_ns)


def skipped_iterations(step: StepRecord) -> int:
    """How many iterations of the record trained nothing."""
    return 0 if step.outcome == Outcome.TRAINED else step.iterations


class _Open:
    def __init__(self, first: StepRecord) -> None:
        self.first_iteration = first.iteration - first.iterations + 1
        self.start_ns = first.start_ns
        self.last = first
        self.sums, self.warmup = StepSums(), StepSums()
        self.skipped = 0
        self.last_known: dict[str, Any] = dict.fromkeys(_LAST)

    def add(self, step: StepRecord, phases: StepPhases | None) -> None:
        self.last = step
        if step.warmup or step.outcome == Outcome.DATA_SKIPPED:
            self.warmup.add(step, phases)
        if not step.warmup:
            self.sums.add(step, phases)
        self.skipped += skipped_iterations(step)
        for name, place in _LAST_AT:
            if step[place] is not None:
                self.last_known[name] = step[place]


class IntervalWindow:
    """Makes an `IntervalRecord` whenever the iteration crosses a multiple of the interval."""

    def __init__(self, interval: int, anchor: Anchor, scale: Scale, has_first: bool = False) -> None:
        """`interval` in iterations, at least 1; `anchor` of the run's start; `scale` of its devices;
        `has_first`: iteration 1 is an interval of its own.
        """
        self._interval = interval
        self._anchor = anchor
        self._scale = scale
        self._has_first = has_first
        self._open: _Open | None = None
        self._hardware, self._host, self._curves = HardwareWindow(), HostWindow(), CurveWindow()

    def add_hardware(self, reading: HardwareRecord) -> None:
        """One more reading of the device; before the steps that ended after it."""
        self._hardware.add(reading)

    def add_host(self, reading: HostRecord) -> None:
        """One more reading of the host; before the steps that ended after it."""
        self._host.add(reading)

    def add_curve(self, curve: CurveRecord) -> None:
        """What the host logged; before the step of its iteration."""
        self._curves.add(curve)

    def add(
        self, step: StepRecord, dropped: int = 0, phases: StepPhases | None = None
    ) -> IntervalRecord | None:
        """Adds a record, and its phases if measured; returns the interval that it completes, if any."""
        if self._open is None:
            self._open = _Open(step)
        self._open.add(step, phases)
        self._hardware.advance(self._open.start_ns, end_mono_ns(step), _trained_ns(step))
        self._host.advance(end_mono_ns(step))
        before = step.iteration - step.iterations
        is_crossed = step.iteration // self._interval > before // self._interval
        return self.close(dropped) if is_crossed or (self._has_first and before == 0) else None

    def close(self, dropped: int = 0) -> IntervalRecord | None:
        """The interval as far as it has got, and a new one begins; None if nothing is in it."""
        open_, self._open = self._open, None
        if open_ is None:
            return None
        warmup_only = open_.sums.steps == 0 and open_.warmup.steps > 0  # what was passed over is in both
        sums = open_.warmup if warmup_only else open_.sums
        return IntervalRecord(
            iteration=open_.last.iteration,
            first_iteration=open_.first_iteration,
            end_wall_ns=self._anchor.wall_of(end_mono_ns(open_.last)),
            steps=sums.steps,
            skipped_iterations=open_.skipped,
            warmup_only=warmup_only,
            **sums.utilisation(self._scale)._asdict(),
            iteration_p50_ns=sums.durations.quantile(0.5),
            iteration_p95_ns=sums.durations.quantile(0.95),
            iteration_max_ns=sums.durations.maximum,
            dropped=dropped,
            **sums.by_name(),
            **open_.last_known,
            **sums.phases.over(sums.steps)._asdict(),
            **self._hardware.close()._asdict(),
            **self._host.close()._asdict(),
            **self._curves.close(),
        )
