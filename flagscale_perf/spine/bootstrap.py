"""How far the median of a run's steps is from what the same run would give again, by the moving-block
bootstrap.

Steps are not independent: a slow one is followed by another, and a run drifts. So whole blocks of neighbours
are drawn (Kuensch 1989), as long as the steps remember each other. Seeded: the same steps give the same
answer.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from operator import itemgetter, mul

from flagscale_perf.spine.averages import mean, median

REPLICATES = 400
MIN_BLOCKS = 4
_LARGEST_LAG_SHARE = 4  # autocorrelations are looked at up to this part of the steps


def memory_of(values: Sequence[float]) -> float:
    """How many steps one step stands for: 1 + 2 x the sum of the autocorrelations, at least 1.

    Of the signs around the median, because it is the median that is asked for and single slow steps say
    nothing about it. The sum ends with the first pair of neighbouring lags that is not positive (Geyer 1992).
    """
    count, middle = len(values), median(values)
    signs = [(value > middle) - (value < middle) for value in values]
    usual = mean(signs)  # not 0 where many steps are the median
    signs_apart = [sign - usual for sign in signs]
    power = _lagged(signs_apart, 0)
    total = 0.0
    for lag in range(1, count // _LARGEST_LAG_SHARE, 2):
        pair = _lagged(signs_apart, lag) + _lagged(signs_apart, lag + 1)
        if pair <= 0 or not power:
            break
        total += pair / power
    return 1 + 2 * total


def _lagged(values: Sequence[float], lag: int) -> float:
    return float(sum(map(mul, values, values[lag:])))


def block_length(values: Sequence[float]) -> int:
    """Steps of a block: the length that is best for a series with this memory, so short that `MIN_BLOCKS` of
    them fit.

    For an autoregressive series of first order with the factor f, (6^(1/2) f / (1 - f^2))^(2/3) n^(1/3)
    (Carlstein 1986, Buehlmann and Kuensch 1999), and at least n^(1/3).
    """
    count, memory = len(values), memory_of(values)
    factor = (memory - 1) / (memory + 1)
    best = max(1.0, math.pow(math.sqrt(6) * factor / (1 - factor * factor), 2 / 3)) * math.pow(count, 1 / 3)
    return max(1, min(math.ceil(best), count // MIN_BLOCKS))


Draw = Callable[[Sequence[float]], tuple[float, ...]]


def draws(count: int, length: int, seed: int) -> list[Draw]:
    """`REPLICATES` ways to pick `count` steps (2 or more) in blocks; these go round at the end."""
    chooser = random.Random(seed)
    blocks = math.ceil(count / length)
    picks: list[Draw] = []
    for _ in range(REPLICATES):
        starts = [chooser.randrange(count) for _ in range(blocks)]
        picks.append(
            itemgetter(*[(start + place) % count for start in starts for place in range(length)][:count])
        )
    return picks
