"""The one median, percentile, mean, standard deviation and scatter of the package."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

Number = TypeVar("Number", int, float)
_TO_DEVIATION = 1.4826  # of a median absolute deviation, for normal noise


def median(values: Iterable[float]) -> float:
    """The middle one of at least one value, or the mean of the middle two."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def median_known(values: Iterable[int | None]) -> int | None:
    """That of the values that are known, in whole units; None where none is."""
    known = [value for value in values if value is not None]
    return int(median(known)) if known else None


def mean(values: Sequence[float]) -> float:
    """The mean of at least one value."""
    return sum(values) / len(values)


def mean_known(values: Iterable[float | None]) -> float | None:
    """That of the values that are known; None where none is."""
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def mean_of_all(values: Sequence[float | None]) -> float | None:
    """The mean; None where there is no value, or one is not known."""
    known = [value for value in values if value is not None]
    return mean(known) if known and len(known) == len(values) else None


def mean_counted(counts: Mapping[int, int]) -> float | None:
    """The mean of values that each came so often; None where none came."""
    count = sum(counts.values())
    return sum(value * times for value, times in counts.items()) / count if count else None


def percentile(values: Sequence[Number], share: float) -> Number:
    """The nearest value from above; `share` is above 0."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def deviation(values: Sequence[float]) -> float:
    """Standard deviation; 0 for fewer than two."""
    if len(values) < 2:
        return 0.0
    middle = mean(values)
    return math.sqrt(sum((value - middle) ** 2 for value in values) / (len(values) - 1))


def scatter(values: Sequence[float], around: float | None = None) -> float:
    """A standard deviation that a few values do not move; around their median unless said otherwise."""
    middle = median(values) if around is None else around
    return _TO_DEVIATION * median(abs(value - middle) for value in values)
