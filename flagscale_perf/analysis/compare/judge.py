"""Typical times side by side: their intervals, whether they differ by more than noise, and what it would take
to know more. The method is in docs/comparing.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flagscale_perf.analysis.compare import bootstrap, student
from flagscale_perf.analysis.compare.bootstrap import deviation

CONFIDENCE = 0.95
PARTS = 5  # of a run, whose medians show how it drifts
ASSUMED_FREEDOM = 2 * (PARTS - 1)  # of a variance that follows from the parts of two runs
MIN_RUNS = 3  # of each side, from which on the runs themselves show the noise between them
MAX_RUNS = 100  # of each side; nobody makes more of them for one answer
POWER = 0.8  # how often what `Judge.needed` says is enough
WHOLE = "iteration"
SLOWER, FASTER, SAME, UNKNOWN = "slower", "faster", "no difference", "unknown"


@dataclass(frozen=True)
class Row:
    """The whole iteration or a part of it. None for what a side did not measure.

    Attributes:
        name: `WHOLE` or the part's.
        base, new: mean over the runs of their median (or what else is judged).
        base_low, base_high, new_low, new_high: bootstrap interval of that within the runs, 95 %.
        change: new - base.
        share, share_low, share_high: the change and its interval in parts of BASE's whole iteration, noise
            between runs included.
        verdict: `SLOWER` or `FASTER` if the interval leaves out 0, else `SAME`; `UNKNOWN` without both
            figures.
    """

    name: str
    base: float | None
    base_low: float | None
    base_high: float | None
    new: float | None
    new_low: float | None
    new_high: float | None
    change: float | None
    share: float | None
    share_low: float | None
    share_high: float | None
    verdict: str


@dataclass(frozen=True)
class Needed:
    """What would make an interval narrow enough for a verdict, four times out of five, if the change is as
    large as it was found.

    Attributes:
        runs: of each side; None where `MAX_RUNS` would not do.
        iterations: of each of the runs that are there; None where longer runs would not do.
    """

    runs: int | None
    iterations: int | None


class _Series(NamedTuple):
    """The medians of one quantity: of each run, of each run in every draw of the bootstrap, and of the parts
    of each run. Another statistic than the median where that is judged.
    """

    medians: list[float]
    drawn: list[list[float]]
    parts: list[list[float]]


class _Variance(NamedTuple):
    """Of the median of one run.

    Attributes:
        total: all of it.
        shrinking: the part of it that is divided by n in a run n times as long.
        freedom: degrees of freedom it is known with.
    """

    total: float
    shrinking: float
    freedom: int


class Judge:
    """Medians, their intervals and verdicts.

    With `MIN_RUNS` runs a side, the variance of a run's median is that between the runs. With fewer it is
    what the bootstrap finds within a run, plus its drift, plus the assumed noise between runs, which one run
    cannot show; a part that takes the share q of the iteration has the share q of that noise's variance.

    Attributes:
        medians: of each run's iteration, or what else is judged.
        block_length: iterations of a block of the bootstrap.
        smallest_visible: change of the whole that would just be more than noise, a share.
        noise: standard deviation between the medians of two runs of one configuration, a share.
        is_noise_seen: it follows from the runs; else it is the assumed one.
    """

    def __init__(
        self,
        times: Sequence[Sequence[float]],
        bases: int,
        noise: float,
        statistic: Callable[[Sequence[float]], float] = bootstrap.median,
    ) -> None:
        """The time of every step of each run, the first `bases` of them BASE's; `noise` between runs as a
        share; what is judged of a run's times.
        """
        self._assumed, self._bases, self._statistic = noise, bases, statistic
        self._news = len(times) - bases
        self._steps = len(times[0])
        self.is_noise_seen = min(bases, self._news) >= MIN_RUNS
        self.block_length = max(map(bootstrap.block_length, times))
        self._draws = bootstrap.draws(self._steps, self.block_length, seed=0)
        self._whole = self._series(times)
        self.medians = self._whole.medians
        self._unit = bootstrap.mean(self.medians[:bases])
        self.smallest_visible = self._reach(self._whole, 1 - CONFIDENCE)
        self.noise = (
            math.sqrt(self._variance(self._whole).total) / self._unit if self.is_noise_seen else noise
        )

    def whole(self) -> Row:
        """The row that judges the iteration as a whole."""
        return self._row(WHOLE, self._whole, 1 - CONFIDENCE)

    def parts(self, parts: Mapping[str, Sequence[Sequence[float | None]]]) -> list[Row]:
        """Of each part that a side measured, from its time in every step of each run; the chance of an error
        is shared among them. What is None in one step only took no time of its own there.
        """
        measured = {
            name: (_is_known(runs[: self._bases]), _is_known(runs[self._bases :]))
            for name, runs in parts.items()
        }
        tests = sum(map(all, measured.values()))
        rows = []
        for name, sides in measured.items():
            if any(sides):
                series = self._series([[time or 0.0 for time in run] for run in parts[name]])
                both = all(sides)
                rows.append(
                    self._row(name, series, (1 - CONFIDENCE) / tests)
                    if both
                    else self._half_row(name, series, sides[0])
                )
        return rows

    def needed(self, distance: float, most_iterations: int) -> Needed:
        """What would make the whole's interval leave out what is so far from its change, a share; a run can
        have so many iterations to compare.
        """
        variance = self._variance(self._whole)
        gap = distance * self._unit
        fixed = variance.total - variance.shrinking
        room = (gap / _both_errors(variance.freedom)) ** 2 / self._weight(self._bases, self._news) - fixed
        longer = math.ceil(self._steps * variance.shrinking / room) if room > 0 else most_iterations + 1
        first = max(MIN_RUNS, min(self._bases, self._news) + 1)
        enough = (
            runs
            for runs in range(first, MAX_RUNS + 1)
            if _both_errors(2 * runs - 2) * math.sqrt(variance.total * self._weight(runs, runs)) <= gap
        )
        return Needed(next(enough, None), longer if self._steps < longer <= most_iterations else None)

    def _series(self, values: Sequence[Sequence[float]]) -> _Series:
        statistic = self._statistic
        drawn = [[statistic(draw(row)) for draw in self._draws] for row in values]
        parts = [[statistic(part) for part in _parts(row) if part] for row in values]
        return _Series([statistic(row) for row in values], drawn, parts)

    def _row(self, name: str, series: _Series, error: float) -> Row:
        base, new = self._means(series.medians)
        change = new - base
        share, reach = change / self._unit, self._reach(series, error)
        verdict = SAME if abs(share) <= reach else SLOWER if share > 0 else FASTER
        (base_low, base_high), (new_low, new_high) = self._intervals(series)
        return Row(
            name,
            base,
            base_low,
            base_high,
            new,
            new_low,
            new_high,
            change,
            share,
            share - reach,
            share + reach,
            verdict,
        )

    def _half_row(self, name: str, series: _Series, is_base: bool) -> Row:
        base, new = self._means(series.medians)
        (base_low, base_high), (new_low, new_high) = self._intervals(series)
        if is_base:
            return Row(name, base, base_low, base_high, None, None, None, None, None, None, None, UNKNOWN)
        return Row(name, None, None, None, new, new_low, new_high, None, None, None, None, UNKNOWN)

    def _means(self, values: Sequence[float]) -> tuple[float, float]:
        return bootstrap.mean(values[: self._bases]), bootstrap.mean(values[self._bases :])

    def _intervals(self, series: _Series) -> list[tuple[float, float]]:
        sides = zip(*(self._means(drawn) for drawn in zip(*series.drawn, strict=True)), strict=True)
        return [_middle_of(values) for values in sides]

    def _reach(self, series: _Series, error: float) -> float:
        """Half the width of the change's interval, in parts of BASE's iteration."""
        variance = self._variance(series)
        weight = self._weight(self._bases, self._news)
        width = student.quantile(1 - error / 2, variance.freedom) * math.sqrt(variance.total * weight)
        return width / self._unit

    @staticmethod
    def _weight(bases: int, news: int) -> float:
        """What the variance of one run's median is multiplied by for that of the change."""
        return 1 / bases + 1 / news

    def _variance(self, series: _Series) -> _Variance:
        sides = series.medians[: self._bases], series.medians[self._bases :]
        freedom = self._bases + self._news - 2
        between = sum(deviation(side) ** 2 * (len(side) - 1) for side in sides) / max(1, freedom)
        within = [deviation(drawn) ** 2 * self._small_sample() for drawn in series.drawn]
        shrinking = bootstrap.mean(within)
        if self.is_noise_seen:
            return _Variance(between, min(between, shrinking), freedom)
        time_share = max(map(abs, self._means(series.medians))) / self._unit
        floor = (self._assumed * self._unit) ** 2 * time_share
        drifting = [
            _with_drift(median, deviation(parts) ** 2)
            for median, parts in zip(within, series.parts, strict=True)
        ]
        total = max(between, bootstrap.mean(drifting) + floor)
        known = (self._bases + self._news) * (self._steps - 1)  # of so few steps, not even that
        return _Variance(total, shrinking, min(ASSUMED_FREEDOM, known))

    def _small_sample(self) -> float:
        """What the bootstrap of so few blocks finds too little."""
        blocks = self._steps / self.block_length
        return blocks / (blocks - 1)


def _with_drift(median: float, parts: float) -> float:
    """The variance of a run's median, with what its parts vary more than being short explains: a drift, which
    does not average out.
    """
    return median + max(0.0, parts - PARTS * median)


def _both_errors(freedom: int) -> float:
    """How many standard deviations a change must be from a limit, so that its interval leaves the limit out
    as often as `POWER`.
    """
    return student.quantile((1 + CONFIDENCE) / 2, freedom) + student.quantile(POWER, freedom)


def _parts(values: Sequence[float]) -> list[Sequence[float]]:
    """`PARTS` neighbouring stretches, each as long as the next, within one."""
    cuts = [len(values) * place // PARTS for place in range(PARTS + 1)]
    return [values[begin:end] for begin, end in zip(cuts, cuts[1:], strict=False)]


def _is_known(runs: Sequence[Sequence[float | None]]) -> bool:
    return any(time is not None for run in runs for time in run)


def _middle_of(values: Sequence[float]) -> tuple[float, float]:
    """The values between which `CONFIDENCE` of them lie."""
    ordered = sorted(values)
    outside = round((1 - CONFIDENCE) / 2 * len(ordered))
    return ordered[outside], ordered[-1 - outside]
