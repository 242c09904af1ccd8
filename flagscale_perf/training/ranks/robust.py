"""Medians and spreads that a few wild values do not move."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

NORMAL = 1.4826  # times the median deviation is the standard deviation, of normally distributed values
FEW = 6  # of so many values the deviation is taken to be twice as great, of more of them less


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


def steady(three: Sequence[float]) -> float:
    """Mean of three values, of which one that is over twice the middle one counts as that: a wild one alone
    moves it little.
    """
    middle = sorted(three)[1]
    return sum(min(value, 2 * middle) for value in three) / 3 if middle > 0 else middle


def noise(values: Sequence[float]) -> float:
    """How much `steady` of three values in a row varies; of at least three values.

    The greater one of two estimates: what it varied, which is too small by chance where there are few values,
    and what it would vary if the values did not depend on one another. Of few values both are taken to be
    greater, as the values may be alike by chance.
    """
    following = [steady(values[place : place + 3]) for place in range(len(values) - 2)]
    return max(spread(following), spread(values) / math.sqrt(3)) * (1 + FEW / len(values))
