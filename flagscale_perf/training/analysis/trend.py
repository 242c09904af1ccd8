"""A run's intervals as the points of a trend."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter, truediv
from typing import Any

from flagscale_perf.analysis.extremes import Extremes
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S, Anchor
from flagscale_perf.spine.figures import Rows
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.training.analysis.findings.signals import Slow, SlowSteps
from flagscale_perf.training.analysis.report import Curves, Point, SlowStep, Trend
from flagscale_perf.training.columns import Intervals
from flagscale_perf.training.figures import TABLE, Run
from flagscale_perf.training.hardware import powers_mw
from flagscale_perf.training.phases import GROUPS, total_of
from flagscale_perf.training.rates import known_tokens, mean_ms
from flagscale_perf.training.records import IntervalRecord
from flagscale_perf.training.samples import ThinnedRows

LIMITED = ("tflops_per_gpu", "mfu", "hfu")  # not shown where they cannot be true
_PAUSE_NS = NS_PER_MS  # what is shorter only looked whether one is due


Order = Callable[[Intervals], Sequence[Any]]


def _ratio(part: str, whole: str) -> Order:
    def ratios(intervals: Intervals) -> list[Any]:
        parts, wholes = intervals[part], intervals[whole]
        try:
            return [*map(truediv, parts, wholes)]
        except (TypeError, ZeroDivisionError):  # to look at each beforehand takes longer
            pairs = zip(parts, wholes, strict=True)
            return [None if one is None or all_ <= 0 else one / all_ for one, all_ in pairs]

    return ratios


def _token_speeds(intervals: Intervals) -> Sequence[Any]:
    tokens = intervals["tokens"]
    if all(tokens):
        return _TOKENS(intervals)
    known = map(known_tokens, tokens, intervals["samples"])
    pairs = zip(known, _TOKENS(intervals), strict=True)
    return [None if one is None else speed for one, speed in pairs]


def _efficiency(intervals: Intervals) -> list[Any]:
    power_mw = powers_mw(intervals)
    speeds = _token_speeds(intervals) if any(power_mw) else power_mw
    pairs = zip(speeds, power_mw, strict=True)
    return [None if speed is None or not power else speed / power for speed, power in pairs]


# By what a figure's lowest and highest are found: to compute the figure itself of each interval takes longer.
_SPEED, _TOKENS = _ratio("model_flops", "iteration_ns"), _ratio("tokens", "iteration_ns")
SETTLED: dict[str, Order] = {
    "tflops_per_gpu": _SPEED,
    "mfu": _SPEED,
    "hfu": _ratio("hardware_flops", "iteration_ns"),
    "tokens_per_s": _token_speeds,
    "iteration_ms": _ratio("iteration_ns", "steps"),
    "iteration_p50_ms": itemgetter("iteration_p50_ns"),
    "iteration_p95_ms": itemgetter("iteration_p95_ns"),
    "iteration_max_ms": itemgetter("iteration_max_ns"),
}
ALWAYS: dict[str, Order] = {
    "memory_gb": itemgetter("memory_bytes"),
    "memory_reserved_gb": itemgetter("memory_reserved_bytes"),
    "memory_peak_gb": itemgetter("memory_peak_bytes"),
    "power_w": powers_mw,
    "sm_clock_mhz": itemgetter("sm_clock_mhz"),
    "temperature_c": itemgetter("temperature_c"),
    "tokens_per_joule": _efficiency,
    "loss": itemgetter("loss"),
    "grad_norm": itemgetter("grad_norm"),
    "learning_rate": itemgetter("learning_rate"),
}
WAITS = {name: _ratio(name.replace("_ms", "_ns"), "steps") for name in ("bubble_ms", "imbalance_ms")}
PAUSES: dict[str, Order] = {"eval_ms": itemgetter("eval_ns"), "checkpoint_ms": itemgetter("checkpoint_ns")}
ORDERS = SETTLED | ALWAYS | WAITS | PAUSES
_FIGURES = dict(zip(ORDERS, TABLE.named([*ORDERS]), strict=True))
_SUSPECT = TABLE.named(["suspect"])[0]


class CurveTotals:
    """Folds the intervals of one run into the curves that a page draws, in bounded memory."""

    def __init__(self, figures: Rows[IntervalRecord, Run]) -> None:
        """`figures` of the run."""
        self._figures = figures
        self._curves: dict[str, Extremes[tuple[Any, ...]]] = defaultdict(Extremes)

    def add(self, every: Intervals) -> None:
        """The next intervals."""
        settled = every.settled
        with_phases = settled.with_phases
        doubtful = self._suspect(settled)
        for name in ALWAYS:
            self._put(name, every)
        for name in SETTLED:
            self._put(name, settled, doubtful=doubtful if name in LIMITED else ())
        for name in WAITS:
            self._put(name, with_phases)
        for name, pause in PAUSES.items():
            self._put(name, settled.those(one > _PAUSE_NS for one in pause(settled)))
        self._put("tflops_per_gpu", settled.those(doubtful or [False] * len(settled)), "suspect")
        self._put("sm_clock_mhz", every.those(every["throttle"]), "capped", attrgetter("throttle"))
        self._put("iteration_ms", with_phases, "groups", _groups_of)

    def result(self) -> Curves:
        """The curves so far."""
        return {name: kept.rows() for name, kept in self._curves.items()}

    def _suspect(self, settled: Intervals) -> list[bool]:
        """Which ones are above the peak; none where the fastest ones are not."""
        speeds = [[speed or 0.0 for speed in SETTLED[name](settled)] for name in ("mfu", "hfu")]
        fastest = [settled.seen(column.index(max(column))) for column in speeds if column]
        are_any = any(map(self._is_suspect, fastest))
        return [self._is_suspect(settled.seen(number)) for number in range(len(settled) * are_any)]

    def _is_suspect(self, interval: IntervalRecord) -> bool:
        return bool(self._figures.value(_SUSPECT, interval))

    def _put(
        self,
        name: str,
        intervals: Intervals,
        curve: str = "",
        also: Callable[[IntervalRecord], Any] | None = None,
        doubtful: Sequence[bool] = (),
    ) -> None:
        if not len(intervals):
            return
        values, figure, curve = ORDERS[name](intervals), _FIGURES[name], curve or name
        if curve not in self._curves:  # it begins with its first known value; most often there is none
            begin = next((number for number, value in enumerate(values) if value is not None), len(values))
            if begin:
                self._put(name, intervals.part(begin, len(values)), curve, also, doubtful[begin:])
                return
        if doubtful:
            values = [None if is_out else value for is_out, value in zip(doubtful, values, strict=True)]

        def row(number: int) -> tuple[Any, ...]:
            one = intervals.seen(number)
            shown = None if values[number] is None else self._figures.value(figure, one)
            return (one.iteration, shown) if also is None else (one.iteration, shown, also(one))

        self._curves[curve].add(values, row)


class TrendTotals:
    """Folds the intervals of one run. The same ones are kept as in the summary's `iteration_logs`."""

    def __init__(self, header: RunHeader) -> None:
        """Raises ValueError for a header whose session id is none."""
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
        self._figures = Rows(TABLE, header)
        self._rows: ThinnedRows[tuple[IntervalRecord, bool]] = ThinnedRows(
            size=lambda row: row[0].iteration_max_ns or 0
        )
        self._curves = CurveTotals(self._figures)
        self._count = 0

    def add(self, intervals: Intervals, have_slow: Sequence[bool]) -> None:
        """Takes the next intervals; `have_slow`: in which of them some step is slow."""
        longest_ns = [longest_ns or 0 for longest_ns in intervals["iteration_max_ns"]]
        self._rows.add_many(longest_ns, lambda number: (intervals.one(number), have_slow[number]))
        self._curves.add(intervals)
        self._count += len(intervals)

    def result(self, slow: SlowSteps) -> Trend:
        """The trend so far; `slow`: the slow steps of the same run."""
        return Trend(
            points=self.points(),
            curves=self._curves.result(),
            intervals=self._count,
            slow_steps=[self._slow_step(step) for step in slow.longest()],
            slow_step_count=slow.count,
            slow_excess_s=slow.excess_ns / NS_PER_S,
        )

    def points(self) -> list[Point]:
        """The trend's intervals so far, thinned."""
        return [self._point(interval, has_slow) for interval, has_slow in self._rows.rows()]

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
