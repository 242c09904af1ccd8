"""Typical times side by side: their intervals, whether they differ by more than noise, and what it would take
to know more. The method is in docs/reading.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

from flagscale_perf.analysis.compare import student
from flagscale_perf.spine import bootstrap
from flagscale_perf.spine.averages import deviation, mean, median

CONFIDENCE = 0.95
PARTS = 5  # of a run, whose medians show how it drifts
MIN_RUNS = 3  # of each side, from which on the runs themselves show the noise between them
MAX_RUNS = 100  # of each side; more are not worth one answer
POWER = 0.8  # how often what `Judge.needed` says is enough
LEAST = 1e-9  # of a time, in any unit: less is as good as none, and has a logarithm
WHOLE = "iteration"
SLOWER, FASTER, UNDECIDED, UNKNOWN = "slower", "faster", "undecided", "unknown"


@dataclass(frozen=True)
class Row:
    """The whole iteration or a part of it. None for what a side did not measure.

    Attributes:
        name: `WHOLE` or the part's.
        base, new: mean over the runs of their median (or what else is judged).
        base_low, base_high, new_low, new_high: its interval, 95 %; of fewer than `MIN_RUNS` runs a side, and
            of what one side alone has, as far as the runs show it within.
        change: new - base.
        share, share_low, share_high: the change and its interval in parts of BASE's whole iteration, noise
            between runs included; none is below -1.
        verdict: `SLOWER` or `FASTER` if the interval leaves out 0, else `UNDECIDED`; `UNKNOWN` without both
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
    """The runs or iterations that make an interval narrow enough for a verdict, four times out of five, if
    the change is as large as it was found.

    Attributes:
        runs: of each side; None where `MAX_RUNS` would not do.
        iterations: of each of the runs that are there; None where longer runs would not do.
    """

    runs: int | None
    iterations: int | None


class _Within(NamedTuple):
    """The value that one run is judged by, and its interval with `CONFIDENCE` as far as the run shows it.

    Attributes:
        value: the median of its steps, or another statistic.
        low, high: the percentiles of the bootstrap, or the lowest and the highest of the run's parts where
            these reach farther: of five parts the true median lies outside in one case of 16.
        chance: variance by the bootstrap alone, which is divided by n in a run n times as long.
    """

    value: float
    low: float
    high: float
    chance: float

    def logarithm(self) -> _Within:
        """The same of the value's logarithm."""
        value, low, high = (math.log(max(time, LEAST)) for time in (self.value, self.low, self.high))
        return _Within(value, low, high, self.chance / max(self.value, LEAST) ** 2)


class _Variance(NamedTuple):
    """The variance of one run's median.

    Attributes:
        total: all of it.
        shrinking: the part of it that is divided by n in a run n times as long.
    """

    total: float
    shrinking: float


class Judge:
    """Medians, their intervals and verdicts.

    With `MIN_RUNS` runs a side, the variance of a run's median is that between the runs. With fewer each
    run has its own interval, which need not reach equally far to both sides, and the assumed noise between
    runs, which one run cannot show, comes on top; a part that takes the share q of the iteration has the
    share q of that noise's variance.

    The whole's change is a ratio and is judged by logarithms: half and twice the time are equally far from
    no change, and no interval reaches below -100 %. That of a part is a difference of two times, and reaches
    no farther down than to none of the part being left.

    Attributes:
        medians: of each run's iteration, or what else is judged.
        block_length: iterations of a block of the bootstrap.
        noise: standard deviation between the medians of two runs of one configuration, a share.
        is_noise_seen: it follows from the runs; else it is the assumed one.
        is_apart: every step of NEW is slower than every one of BASE, or faster.
    """

    def __init__(
        self,
        times: Sequence[Sequence[float]],
        bases: int,
        noise: float,
        statistic: Callable[[Sequence[float]], float] = median,
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
        (base_low, base_high), (new_low, new_high) = map(_range, (times[:bases], times[bases:]))
        self.is_apart = base_high < new_low or new_high < base_low
        whole = self._series(times)
        self.medians = [run.value for run in whole]
        self._logs = [run.logarithm() for run in whole]
        self._unit = mean(self.medians[:bases])
        self.noise = math.sqrt(self._between(self._logs)) if self.is_noise_seen else noise

    def whole(self, error: float = 1 - CONFIDENCE) -> Row:
        """The row that judges the iteration as a whole; `error`: how often its interval may be wrong."""
        means = base, new = self._means(self.medians)
        down, up = _apart(self._reaches(self._logs, error, self._noise(self._logs, self._assumed**2)))
        middles = self._means([run.value for run in self._logs])
        shown = [
            (mean * math.exp(low - middle), mean * math.exp(high - middle))
            for mean, middle, (low, high) in zip(means, middles, self._shown(self._logs), strict=True)
        ]
        ratio = new / base
        shares = ratio - 1, ratio * math.exp(-down) - 1, ratio * math.exp(up) - 1
        return _row(WHOLE, means, shown, shares)

    def parts(self, parts: Mapping[str, Sequence[Sequence[float | None]]]) -> list[Row]:
        """A row for each part that a side measured, from its time in every step of each run; the chance of an
        error is divided among them. A part that is None in single steps took no time of its own there.
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
                    self._part(name, series, (1 - CONFIDENCE) / tests)
                    if both
                    else self._half_row(name, series, sides[0])
                )
        return rows

    def needed(self, distance: float, most_iterations: int) -> Needed:
        """The runs or iterations for which the whole's interval would leave out a value at this distance from
        its change, see `distance`. A run can have `most_iterations` to compare.
        """
        variance, freedom, gap = self._variance(self._logs), self._freedom, distance
        fixed = variance.total - variance.shrinking
        room = (gap / _both_errors(freedom)) ** 2 / self._weight(self._bases, self._news) - fixed
        longer = math.ceil(self._steps * variance.shrinking / room) if room > 0 else most_iterations + 1
        first = max(MIN_RUNS, min(self._bases, self._news) + 1)
        enough = (
            runs
            for runs in range(first, MAX_RUNS + 1)
            if _both_errors(2 * runs - 2) * math.sqrt(variance.total * self._weight(runs, runs)) <= gap
        )
        return Needed(next(enough, None), longer if self._steps < longer <= most_iterations else None)

    def _series(self, values: Sequence[Sequence[float]]) -> list[_Within]:
        return [self._within(row) for row in values]

    def _within(self, row: Sequence[float]) -> _Within:
        value = self._statistic(row)
        drawn = [self._statistic(draw(row)) for draw in self._draws]
        low, high = _middle_of(drawn)
        parts = [self._statistic(part) for part in _parts(row) if part]
        few = self._small_sample()
        widened = (value + (end - value) * math.sqrt(few) for end in (low, high))
        low, high = (_within_range(end, row) for end in widened)
        return _Within(value, min(low, *parts), max(high, *parts), deviation(drawn) ** 2 * few)

    def _part(self, name: str, series: Sequence[_Within], error: float) -> Row:
        means = base, new = self._means([run.value for run in series])
        noise = self._noise(series, (self._assumed * self._unit) ** 2 * max(means) / self._unit)
        down, up = _apart(self._reaches(series, error, noise))
        change, shown = new - base, [(max(0.0, low), high) for low, high in self._shown(series)]
        shares = (change, max(-base, change - down), change + up)
        return _row(name, means, shown, [share / self._unit for share in shares])

    def _half_row(self, name: str, series: Sequence[_Within], is_base: bool) -> Row:
        base, new = self._means([run.value for run in series])
        (base_low, base_high), (new_low, new_high) = self._intervals(series)
        if is_base:
            return Row(name, base, base_low, base_high, None, None, None, None, None, None, None, UNKNOWN)
        return Row(name, None, None, None, new, new_low, new_high, None, None, None, None, UNKNOWN)

    def _means(self, values: Sequence[float]) -> tuple[float, float]:
        return mean(values[: self._bases]), mean(values[self._bases :])

    def _shown(self, series: Sequence[_Within]) -> list[tuple[float, float]]:
        if not self.is_noise_seen:
            return self._intervals(series)
        means, reaches = (
            self._means([run.value for run in series]),
            self._reaches(series, 1 - CONFIDENCE, 0.0),
        )
        return [(mean - down, mean + up) for mean, (down, up) in zip(means, reaches, strict=True)]

    def _intervals(self, series: Sequence[_Within]) -> list[tuple[float, float]]:
        """The interval of each side's mean, as far as the runs themselves show it."""
        found = []
        for side in (series[: self._bases], series[self._bases :]):
            middle = mean([run.value for run in side])
            down = math.hypot(*(run.value - run.low for run in side)) / len(side)
            up = math.hypot(*(run.high - run.value for run in side)) / len(side)
            found.append((middle - down, middle + up))
        return found

    def _reaches(self, series: Sequence[_Within], error: float, noise: float) -> list[tuple[float, float]]:
        """How far the mean of each side may be too high and too low; `noise`: variance between runs."""
        runs = self._bases, self._news
        if self.is_noise_seen:
            reach = _quantile(1 - error / 2, self._freedom) * math.sqrt(self._between(series))
            return [(reach / math.sqrt(count), reach / math.sqrt(count)) for count in runs]
        few = len(series) * (self._steps - 1)  # degrees of freedom: of few steps, not even that is known
        scale = _quantile(1 - error / 2, few)
        wider = scale / _quantile((1 + CONFIDENCE) / 2)
        sides = zip(self._means([run.value for run in series]), self._intervals(series), runs, strict=True)
        found = []
        for middle, (low, high), count in sides:
            beyond = scale * math.sqrt(noise / count)
            found.append(
                (math.hypot(wider * (middle - low), beyond), math.hypot(wider * (high - middle), beyond))
            )
        return found

    @staticmethod
    def _weight(bases: int, news: int) -> float:
        """The factor from the variance of one run's median to that of the change."""
        return 1 / bases + 1 / news

    @property
    def _freedom(self) -> int | None:
        """Degrees of freedom that the noise between runs is known with; None where it is assumed."""
        return self._bases + self._news - 2 if self.is_noise_seen else None

    def _between(self, series: Sequence[_Within]) -> float:
        values = [run.value for run in series]
        sides = values[: self._bases], values[self._bases :]
        return sum(deviation(side) ** 2 * (len(side) - 1) for side in sides) / max(1, len(values) - 2)

    def _noise(self, series: Sequence[_Within], assumed: float) -> float:
        """Variance between runs beyond that within them: the assumed one, or what a side shows, if larger."""
        within = mean([run.chance for run in series])
        return max(assumed, self._between(series) - within)

    def _variance(self, series: Sequence[_Within]) -> _Variance:
        shrinking = mean([run.chance for run in series])
        if self.is_noise_seen:
            between = self._between(series)
            return _Variance(between, min(between, shrinking))
        reaches = [(run.high - run.low) / 2 / _quantile((1 + CONFIDENCE) / 2) for run in series]
        within = max(shrinking, mean([reach**2 for reach in reaches]))
        return _Variance(within + self._noise(series, self._assumed**2), shrinking)

    def _small_sample(self) -> float:
        """The factor that makes up for what a bootstrap of so few blocks underestimates."""
        blocks = self._steps / self.block_length
        return blocks / (blocks - 1)


def distance(share: float, other: float = 0.0) -> float:
    """How far two changes, shares above -1, are from each other: of the logarithms of their ratios."""
    return abs(math.log1p(share) - math.log1p(other))


def _row(
    name: str,
    means: tuple[float, float],
    shown: Sequence[tuple[float, float]],
    shares: Sequence[float],
) -> Row:
    share, low, high = shares
    (base, new), ((base_low, base_high), (new_low, new_high)) = means, shown
    verdict = SLOWER if low > 0 else FASTER if high < 0 else UNDECIDED
    change = new - base
    return Row(name, base, base_low, base_high, new, new_low, new_high, change, share, low, high, verdict)


def _apart(sides: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """How far the change from BASE to NEW may be too high and too low; so may the figure of each side.

    Of a difference of two figures with intervals of their own, squares of what they reach towards each other
    add up (Zou and Donner 2008): where the runs' own intervals are apart, that of the change leaves out 0,
    however lopsided they are.
    """
    (base_down, base_up), (new_down, new_up) = sides
    return math.hypot(new_down, base_up), math.hypot(new_up, base_down)


def _both_errors(freedom: int | None) -> float:
    """Standard deviations from a limit at which the interval leaves it out as often as `POWER`."""
    return _quantile((1 + CONFIDENCE) / 2, freedom) + _quantile(POWER, freedom)


def _quantile(probability: float, freedom: int | None = None) -> float:
    """A quantile in standard deviations; `freedom` is None where these are not estimated."""
    return NormalDist().inv_cdf(probability) if freedom is None else student.quantile(probability, freedom)


def _within_range(value: float, row: Sequence[float]) -> float:
    return min(max(value, min(row)), max(row))


def _parts(values: Sequence[float]) -> list[Sequence[float]]:
    """`PARTS` neighbouring stretches, each as long as the next, within one."""
    cuts = [len(values) * place // PARTS for place in range(PARTS + 1)]
    return [values[begin:end] for begin, end in zip(cuts, cuts[1:], strict=False)]


def _range(runs: Sequence[Sequence[float]]) -> tuple[float, float]:
    return min(map(min, runs)), max(map(max, runs))


def _is_known(runs: Sequence[Sequence[float | None]]) -> bool:
    return any(time is not None for run in runs for time in run)


def _middle_of(values: Sequence[float]) -> tuple[float, float]:
    """The values between which `CONFIDENCE` of them lie."""
    ordered = sorted(values)
    outside = round((1 - CONFIDENCE) / 2 * len(ordered))
    return ordered[outside], ordered[-1 - outside]
