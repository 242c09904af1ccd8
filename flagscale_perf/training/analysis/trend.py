"""A run's intervals as the points of a trend."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
COLUMNS = TABLE.named([*SETTLED, *ALWAYS, *WAITS, *PAUSES, "iteration", "warmup_only", "suspect", "throttle"])
_BLOCK = 64  # intervals that are looked at together
PAUSE_MS = 1  # what is shorter only looked whether one is due


class CurveTotals:
    """Folds the intervals of one run into the curves that a page draws, in bounded memory."""

    def __init__(self) -> None:
        self._curves: dict[str, Extremes[tuple[Any, ...]]] = defaultdict(Extremes)

    def add(
        self, columns: Mapping[str, Sequence[Any]], measured: Sequence[bool], groups_ms: Callable[[int], Any]
    ) -> None:
        """The next intervals: of each figure in `COLUMNS` its values, which intervals have phases, and what
        makes the groups of the n-th, see `report.Point`.
        """
        every = range(len(measured))
        settled = [n for n in every if not columns["warmup_only"][n]]
        suspect = {n for n in settled if columns["suspect"][n]}
        with_phases = [n for n in settled if measured[n]]
        put, reasons = partial(self._put, columns["iteration"]), columns["throttle"]
        for name in ALWAYS:
            put(name, columns[name], every)
        self._put_settled(columns, settled, suspect)
        for name in WAITS:
            put(name, columns[name], with_phases)
        put("suspect", columns["tflops_per_gpu"], sorted(suspect))
        put("capped", columns["sm_clock_mhz"], [n for n in every if reasons[n]], reasons.__getitem__)
        put("groups", columns["iteration_ms"], with_phases, groups_ms)

    def _put_settled(
        self, columns: Mapping[str, Sequence[Any]], settled: Sequence[int], suspect: set[int]
    ) -> None:
        """Speeds, but not those that cannot be true, and what pauses there were between iterations."""
        put = partial(self._put, columns["iteration"])
        for name in SETTLED:
            column = columns[name]
            if suspect and name in LIMITED:
                column = [None if n in suspect else value for n, value in enumerate(column)]
            put(name, column, settled)
        for name in PAUSES:
            put(name, columns[name], [n for n in settled if (columns[name][n] or 0) > PAUSE_MS])

    def _put(
        self,
        at: Sequence[float],
        name: str,
        column: Sequence[Any],
        chosen: Sequence[int],
        also: Callable[[int], Any] | None = None,
    ) -> None:
        if chosen:
            values = [column[n] for n in chosen]
            more = (lambda n: ()) if also is None else (lambda n: (also(n),))
            self._curves[name].add(values, lambda n: (at[chosen[n]], values[n], *more(chosen[n])))

    def result(self) -> Curves:
        """The curves so far."""
        return {name: kept.rows() for name, kept in self._curves.items()}


class TrendTotals:
    """Folds the intervals of one run. The same ones are kept as in the summary's `iteration_logs`."""

    def __init__(self, header: RunHeader) -> None:
        """Raises ValueError for a header whose session id is none."""
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
        self._figures = Rows(TABLE, header)
        self._rows: ThinnedRows[tuple[IntervalRecord, bool]] = ThinnedRows(
            size=lambda row: row[0].iteration_max_ns or 0
        )
        self._curves, self._waiting = CurveTotals(), list[IntervalRecord]()
        self._count = 0
        self._has_slow = False

    def mark_slow(self) -> None:
        """One of the steps since the last interval is slow."""
        self._has_slow = True

    def add(self, interval: IntervalRecord) -> None:
        """Takes the next interval, with the steps marked as slow since the one before."""
        self._rows.add((interval, self._has_slow))
        self._waiting.append(interval)
        if len(self._waiting) == _BLOCK:
            self._draw()
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
        self._draw()
        return self._curves.result()

    def _draw(self) -> None:
        block, self._waiting = self._waiting, []
        columns: dict[str, list[Any]] = {
            figure.key: [self._figures.value(figure, interval) for interval in block] for figure in COLUMNS
        }
        measured = [interval.phases_ns is not None for interval in block]
        self._curves.add(columns, measured, lambda n: _groups_of(block[n]))

    def _slow_step(self, step: Slow) -> SlowStep:
        elapsed_s = (step.end_ns - self._anchor.mono_ns) / NS_PER_S
        return SlowStep(step.iteration, elapsed_s, step.iteration_ns / NS_PER_MS, step.usual_ns / NS_PER_MS)

    def _point(self, interval: IntervalRecord, has_slow: bool) -> Point:
        return Point(self._figures.csv(interval), has_slow, _groups_of(interval))


def _groups_of(interval: IntervalRecord) -> dict[str, float | None] | None:
    phases_ns, steps = interval.phases_ns, interval.steps
    if phases_ns is None:
        return None
    return {group: mean_ms(total_of(phases_ns, names), steps) for group, names in GROUPS.items()}
