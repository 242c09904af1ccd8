"""The fixed cost of a message and the cost of each of its bytes: t = alpha + size / beta."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MIN_SIZES = 3  # a line goes through any two points


@dataclass(frozen=True)
class Fit:
    """A line through times by size.

    Attributes:
        alpha_s: what an empty message would take: this is what decoding feels.
        beta_bytes_per_s: what each further byte goes at: this is what training feels.
        r2: how much of the spread the line explains, each point weighted as in the fit; 1 is all.
        points: sizes.
    """

    alpha_s: float
    beta_bytes_per_s: float
    r2: float
    points: int


def fit(sizes: Sequence[float], times: Sequence[float]) -> Fit | None:
    """By least squares of relative errors: each point has weight 1/t, so that large messages do not dominate.
    None with fewer than `MIN_SIZES` sizes, or if times do not grow with the size.
    """
    if len(set(sizes)) < MIN_SIZES or min(times) <= 0:
        return None
    weights = [1 / (time * time) for time in times]
    total = sum(weights)
    size_mean = _mean(weights, sizes, total)
    time_mean = _mean(weights, times, total)
    spread = sum(w * (size - size_mean) ** 2 for w, size in zip(weights, sizes, strict=True))
    joint = sum(
        w * (size - size_mean) * (time - time_mean)
        for w, size, time in zip(weights, sizes, times, strict=True)
    )
    slope = joint / spread
    if slope <= 0:
        return None
    alpha = time_mean - slope * size_mean
    left = sum(
        w * (time - alpha - slope * size) ** 2 for w, size, time in zip(weights, sizes, times, strict=True)
    )
    whole = sum(w * (time - time_mean) ** 2 for w, time in zip(weights, times, strict=True))
    return Fit(alpha, 1 / slope, 1 - left / whole, len(sizes))


def _mean(weights: Sequence[float], values: Sequence[float], total: float) -> float:
    return sum(w * value for w, value in zip(weights, values, strict=True)) / total
