"""A run's intervals as the points of a trend."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from flagscale_perf.analysis.extremes import Extremes
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S, Anchor
from flagscale_perf.spine.figures import Rows
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.training.analysis.findings.signals import Slow, SlowSteps
from flagscale_perf.training.analysis.report import Curves, Point, SlowStep, Trend
from flagscale_perf.training.figures import TABLE
from flagscale_perf.training.phases import GROUPS, total_of
from flagscale_perf.training.rates import mean_ms
from flagscale_perf.training.records import IntervalRecord
from flagscale_perf.training.samples import ThinnedRows

SETTLED = (
    *("tflops_per_gpu", "mfu", "hfu", "tokens_per_s"),
    *("iteration_ms", "iteration_p50_ms", "iteration_p95_ms", "iteration_max_ms"),
)
ALWAYS = (
    *("memory_gb", "memory_reserved_gb", "memory_peak_gb"),
    *("power_w", "sm_clock_mhz", "temperature_c", "tokens_per_joule"),
)
LIMITED = ("tflops_per_gpu", "mfu", "hfu")  # not shown where they cannot be true
WAITS = ("bubble_ms", "imbalance_ms")
PAUSES = ("eval_ms", "checkpoint_ms")
PAUSE_MS = 1  # what is shorter only looked whether one is due


class CurveTotals:
    """Folds the intervals of one run into the curves that a page draws, in bounded memory."""

    def __init__(self) -> None:
        self._curves: dict[str, Extremes[tuple[Any, ...]]] = defaultdict(Extremes)

    def add(self, point: Point) -> None:
        """The next interval."""
        at, figures = point.iteration, point.figures
        for name in ALWAYS if figures["warmup_only"] else (*SETTLED, *ALWAYS):
            value = None if name in LIMITED and figures["suspect"] else point.number(name)
            self._curves[name].add(value, (at, value))
        if figures["throttle"]:
            clock = point.number("sm_clock_mhz")
            self._curves["capped"].add(clock, (at, clock, str(figures["throttle"])))
        if figures["warmup_only"]:
            return
        if figures["suspect"]:
            rate = point.number("tflops_per_gpu")
            self._curves["suspect"].add(rate, (at, rate))
        for name in PAUSES:
            if (pause := point.number(name) or 0.0) > PAUSE_MS:
                self._curves[name].add(pause, (at, pause))
        if point.groups_ms is not None:
            self._curves["groups"].add(sum(filter(None, point.groups_ms.values())), (at, point.groups_ms))
            for name in WAITS:
                self._curves[name].add(point.number(name), (at, point.number(name)))

    def result(self) -> Curves:
        """The curves so far."""
        return {name: kept.rows() for name, kept in self._curves.items()}


class TrendTotals:
    """Folds the intervals of one run. The same ones are kept as in the summary's `iteration_logs`."""

    def __init__(self, header: RunHeader) -> None:
        """Raises ValueError for a header whose session id is none."""
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
        self._figures = Rows(TABLE, header)
        self._rows: ThinnedRows[tuple[IntervalRecord, bool]] = ThinnedRows()
        self._curves = CurveTotals()
        self._count = 0
        self._has_slow = False

    def mark_slow(self) -> None:
        """One of the steps since the last interval is slow."""
        self._has_slow = True

    def add(self, interval: IntervalRecord) -> None:
        """Takes the next interval, with the steps marked as slow since the one before."""
        self._rows.add((interval, self._has_slow))
        self._curves.add(self._point(interval, self._has_slow))
        self._has_slow = False
        self._count += 1

    def result(self, slow: SlowSteps) -> Trend:
        """The trend so far; `slow`: the slow steps of the same run."""
        return Trend(
            points=self.points(),
            curves=self.curves(),
            intervals=self._count,
            slow_steps=[self._slow_step(step) for step in slow.longest()],
            slow_step_count=slow.count,
            slow_excess_s=slow.excess_ns / NS_PER_S,
        )

    def points(self) -> list[Point]:
        """The trend's intervals so far, thinned."""
        return [self._point(interval, has_slow) for interval, has_slow in self._rows.rows()]

    def curves(self) -> Curves:
        """What a page draws of the intervals so far."""
        return self._curves.result()

    def _slow_step(self, step: Slow) -> SlowStep:
        elapsed_s = (step.end_ns - self._anchor.mono_ns) / NS_PER_S
        return SlowStep(step.iteration, elapsed_s, step.iteration_ns / NS_PER_MS, step.usual_ns / NS_PER_MS)

    def _point(self, interval: IntervalRecord, has_slow: bool) -> Point:
        phases_ns = interval.phases_ns
        groups_ms = None if phases_ns is None else _groups_ms(phases_ns, interval.steps)
        return Point(self._figures.csv(interval), has_slow, groups_ms)


def _groups_ms(phases_ns: dict[str, int | None], steps: int) -> dict[str, float | None]:
    return {group: mean_ms(total_of(phases_ns, names), steps) for group, names in GROUPS.items()}
