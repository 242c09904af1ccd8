"""A run's intervals as the points of a trend."""

from __future__ import annotations

from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S, Anchor
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.spine.session import Labels
from flagscale_perf.training.analysis.report import Point, SlowStep, Trend
from flagscale_perf.training.findings.signals import Slow, SlowSteps
from flagscale_perf.training.hardware import mean_power_w, tokens_per_joule
from flagscale_perf.training.phases import GROUPS, total_of
from flagscale_perf.training.rates import as_gb, mean_ms, rates_of
from flagscale_perf.training.records import IntervalRecord
from flagscale_perf.training.summary import ThinnedRows
from flagscale_perf.training.utilisation import Scale


class TrendTotals:
    """Folds the intervals of one run. The same ones are kept as in the summary's `iteration_logs`."""

    def __init__(self, header: RunHeader) -> None:
        """Raises ValueError for a header whose session id is none."""
        self._start_wall_ns = header.start_wall_ns
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
        self._labels = Labels(header)
        self._scale = Scale.of(header.facts)
        self._rows: ThinnedRows[tuple[IntervalRecord, bool]] = ThinnedRows()
        self._count = 0
        self._has_slow = False

    def mark_slow(self) -> None:
        """One of the steps since the last interval is slow."""
        self._has_slow = True

    def add(self, interval: IntervalRecord) -> None:
        """The next interval."""
        self._rows.add((interval, self._has_slow))
        self._has_slow = False
        self._count += 1

    def result(self, slow: SlowSteps) -> Trend:
        """The trend so far."""
        return Trend(
            points=[self._point(interval, has_slow) for interval, has_slow in self._rows.rows()],
            intervals=self._count,
            slow_steps=[self._slow_step(step) for step in slow.longest()],
            slow_step_count=slow.count,
            slow_excess_s=slow.excess_ns / NS_PER_S,
        )

    def _slow_step(self, step: Slow) -> SlowStep:
        elapsed_s = (step.end_ns - self._anchor.mono_ns) / NS_PER_S
        return SlowStep(step.iteration, elapsed_s, step.iteration_ns / NS_PER_MS, step.usual_ns / NS_PER_MS)

    def _point(self, interval: IntervalRecord, has_slow: bool) -> Point:
        rates, steps = rates_of(interval, self._scale), interval.steps
        return Point(
            first_iteration=interval.first_iteration,
            iteration=interval.iteration,
            at=self._labels.at(interval.end_wall_ns).isoformat(sep=" "),
            elapsed_s=(interval.end_wall_ns - self._start_wall_ns) / NS_PER_S,
            steps=steps,
            skipped_iterations=interval.skipped_iterations,
            tflops_per_gpu=rates.tflops_per_gpu,
            mfu=rates.utilisation.mfu,
            hfu=rates.utilisation.hfu,
            tokens_per_s=rates.tokens_per_s,
            samples_per_s=rates.samples_per_s,
            iteration_ms=rates.iteration_ms,
            p50_ms=_ms(interval.iteration_p50_ns),
            p95_ms=_ms(interval.iteration_p95_ns),
            max_ms=_ms(interval.iteration_max_ns),
            is_warmup=interval.warmup_only,
            is_suspect=rates.utilisation.is_suspect,
            is_slow=has_slow,
            eval_s=interval.eval_ns / NS_PER_S,
            checkpoint_s=interval.checkpoint_ns / NS_PER_S,
            memory_gb=as_gb(interval.memory_bytes),
            memory_peak_gb=as_gb(interval.memory_peak_bytes),
            memory_reserved_gb=as_gb(interval.memory_reserved_bytes),
            power_w=mean_power_w(interval),
            tokens_per_joule=tokens_per_joule(interval, self._scale),
            sm_clock_mhz=interval.sm_clock_mhz,
            temperature_c=interval.temperature_c,
            throttle=interval.throttle,
            phases_ms=None
            if interval.phases_ns is None
            else {name: mean_ms(ns, steps) for name, ns in interval.phases_ns.items()},
            groups_ms=None if interval.phases_ns is None else _groups_ms(interval.phases_ns, steps),
            bubble_ms=mean_ms(interval.bubble_ns, steps),
            imbalance_ms=mean_ms(interval.imbalance_ns, steps),
        )


def _groups_ms(phases_ns: dict[str, int | None], steps: int) -> dict[str, float]:
    return {group: mean_ms(total_of(phases_ns, names) or 0, steps) or 0.0 for group, names in GROUPS.items()}


def _ms(dur_ns: int | None) -> float | None:
    return None if dur_ns is None else dur_ns / NS_PER_MS
