"""Sums, percentiles and intervals of weighted figures in constant memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

_PER_E = 100.0  # buckets for each factor of e: 1 % wide
_ZERO_AT = 1_000_000  # bucket of the value 1; that of 0 is 0
_Z = 1.96  # standard deviations of a 95 % interval


class Spread:
    """Values of one figure, each weighted by how many it stands for. Percentiles are within 1 %: values that
    are nearer to each other share a bucket, and count as its mean. So spreads of any length can be merged.

    Attributes:
        count: values seen.
        weight: of all of them, how many they stand for.
        total: sum of value x weight.
        squares: sum of value^2 x weight.
        high: the largest value seen.
    """

    __slots__ = ("_buckets", "_drawn", "count", "high", "squares", "total", "weight")

    def __init__(self) -> None:
        self.count = 0
        self.weight = self.total = self.squares = self.high = 0.0
        self._buckets: dict[int, tuple[float, float]] = {}  # weight, and sum of value x weight
        self._drawn = (0.0, 0.0, 0.0)  # of weight x (weight - 1): itself, with the value, with its square

    def add(self, value: float, weight: float = 1.0) -> None:
        """Adds a value, 0 or more."""
        self.extend((value,), weight)

    def extend(self, values: Sequence[float], weight: float = 1.0) -> None:
        """Adds values, all with this weight."""
        if not values:
            return
        count, total, squares = len(values), sum(values), sum([value * value for value in values])
        self.count += count
        self.weight += count * weight
        self.total += total * weight
        self.squares += squares * weight
        self.high = max(self.high, max(values))
        if weight != 1.0:
            more, (one, two, three) = weight * (weight - 1), self._drawn
            self._drawn = (one + count * more, two + total * more, three + squares * more)
        for value in values:
            self._fill(int(math.log(value) * _PER_E + _ZERO_AT) if value > 0 else 0, weight, value * weight)

    def merge(self, other: Spread) -> None:
        """Adds the values of another spread."""
        self.count += other.count
        self.weight += other.weight
        self.total += other.total
        self.squares += other.squares
        self.high = max(self.high, other.high)
        one, two = self._drawn, other._drawn
        self._drawn = (one[0] + two[0], one[1] + two[1], one[2] + two[2])
        for key, (weight, total) in other._buckets.items():
            self._fill(key, weight, total)

    def _fill(self, key: int, weight: float, total: float) -> None:
        before = self._buckets.get(key)
        self._buckets[key] = (weight, total) if before is None else (before[0] + weight, before[1] + total)

    @property
    def mean(self) -> float | None:
        """None if there are no values."""
        return self.total / self.weight if self.weight else None

    @property
    def variation(self) -> float | None:
        """Standard deviation over the mean; None for fewer than two values."""
        if self.count < 2 or not self.total:
            return None
        middle = self.total / self.weight
        return math.sqrt(max(0.0, self.squares / self.weight - middle * middle)) / middle

    def percentile(self, share: float) -> float | None:
        """The lowest value that this share of the weight does not exceed; None if there are no values."""
        if not self.count:
            return None
        wanted, seen = share * self.weight * (1 - 1e-12), 0.0
        for value, weight in self.steps():
            seen += weight
            if seen >= wanted:
                return value
        return self.high

    def steps(self) -> list[tuple[float, float]]:
        """The buckets in ascending order: the mean of each and its weight."""
        return [(total / weight, weight) for _, (weight, total) in sorted(self._buckets.items())]

    def below(self, bounds: Sequence[float]) -> list[float]:
        """The weight of the values up to each bound."""
        counts = [0.0] * len(bounds)
        for value, weight in self.steps():
            for number, bound in enumerate(bounds):
                counts[number] += weight if value <= bound else 0
        return counts

    def mean_within(self) -> float:
        """Half-width of the mean's 95 % interval due to sampling; 0 if nothing was left out. Each value is
        taken as chosen independently with probability 1 / weight (Horvitz and Thompson 1952).
        """
        middle = self.mean
        if middle is None or not self._drawn[0]:
            return 0.0
        one, value, square = self._drawn
        return _Z * math.sqrt(max(0.0, square - 2 * middle * value + middle * middle * one)) / self.weight

    def weight_within(self) -> float:
        """The same for the total weight."""
        return _Z * math.sqrt(max(0.0, self._drawn[0]))

    def as_dict(self) -> dict[str, float | int | None]:
        """JSON-ready, in the figure's own unit."""
        return {
            "count": self.count,
            "stands_for": self.weight,
            "sum": self.total,
            "mean": self.mean,
            "mean_within": self.mean_within(),
            "p50": self.percentile(0.5),
            "p95": self.percentile(0.95),
            "p99": self.percentile(0.99),
            "max": self.high if self.count else None,
            "variation": self.variation,
        }


class Distinct:
    """Counts distinct texts: exactly up to `KEPT`, beyond that to about 1 %. The smallest hashes are kept;
    their density gives the number (Bar-Yossef et al. 2002).
    """

    KEPT = 1 << 16

    def __init__(self) -> None:
        self._hashes: set[int] = set()
        self._limit = 1 << 64

    def add(self, hashed: int) -> None:
        """Adds a text's 64-bit hash."""
        if hashed < self._limit:
            self._hashes.add(hashed)
            if len(self._hashes) > 2 * self.KEPT:
                kept = sorted(self._hashes)[: self.KEPT]
                self._hashes, self._limit = set(kept), kept[-1] + 1

    @property
    def is_exact(self) -> bool:
        """Whether all hashes have been kept."""
        return self._limit == 1 << 64

    @property
    def count(self) -> int:
        """The number of distinct texts."""
        if self.is_exact:
            return len(self._hashes)
        kept = sorted(self._hashes)[: self.KEPT]
        return round((len(kept) - 1) * (1 << 64) / kept[-1])
