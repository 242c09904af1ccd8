"""Student's t distribution without a library: what a normal distribution is when its deviation is only
estimated.
"""

from __future__ import annotations

import math


def cdf(t: float, freedom: int) -> float:
    """Probability of a value of at most `t` with so many degrees of freedom (at least 1).

    The finite series of Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    theta = math.atan2(t, math.sqrt(freedom))
    cosine_squared = freedom / (freedom + t * t)
    first = freedom % 2 + 1
    term = total = 1.0
    for n in range(first, freedom - 1, 2):
        term *= cosine_squared * n / (n + 1)
        total += term
    if freedom % 2 == 0:
        return 0.5 + math.sin(theta) * total / 2
    within = theta + (math.sin(theta) * math.cos(theta) * total if freedom > 1 else 0.0)
    return 0.5 + within / math.pi


def quantile(probability: float, freedom: int) -> float:
    """The value not exceeded with this probability, from 0.5 to below 1; by bisection, to 1e-9 of it."""
    low, high = 0.0, 1.0
    while cdf(high, freedom) < probability:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if cdf(middle, freedom) < probability else (low, middle)
    return high
