"""Medians and spreads that a few wild values do not move."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

NORMAL = 1.4826  # the median deviation of normally distributed values, times this, is their standard deviation


def spread(values: Sequence[float], centre: float | None = None) -> float:
    """Standard deviation by the median of the deviations from `centre`, by default the values' median."""
    middle = statistics.median(values) if centre is None else centre
    return NORMAL * statistics.median(abs(value - middle) for value in values)


def median_without(ordered: Sequence[float], place: int) -> float:
    """Median of ascending values, at least two, but for the one at `place`."""
    left = len(ordered) - 1
    upper = left // 2
    high = ordered[upper + (upper >= place)]
    return high if left % 2 else (ordered[upper - 1 + (upper - 1 >= place)] + high) / 2


def medians_of_three(values: Sequence[float]) -> list[float]:
    """The median of every three that follow one another."""
    return [sorted(values[place : place + 3])[1] for place in range(len(values) - 2)]
