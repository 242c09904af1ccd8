"""The slope of a step's time by a planted delay, with its interval."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median

_RESAMPLED = 2000
MIN_PAIRS = 5


@dataclass(frozen=True)
class Effect:
    """What the step felt.

    Attributes:
        pairs: of a delayed step and one beside it that was not.
        planted_ns: in a delayed step, on average.
        slope: change of the step by what was planted: 1, everything waits for it; 0, it is hidden.
        low, high: in which 95 % of the slopes lie that other pairs of the same run could have given.
    """

    pairs: int
    planted_ns: float
    slope: float
    low: float
    high: float


def effect_of(steps: Sequence[tuple[bool, int, int]]) -> Effect | None:
    """Of steps in pairs: whether each was delayed, by what, and its time. None with fewer than `MIN_PAIRS`
    pairs, or where nothing was planted.
    """
    slopes, planted = [], []
    for first, second in zip(steps[::2], steps[1::2], strict=False):
        delayed, clean = (first, second) if first[0] else (second, first)
        if delayed[0] and not clean[0] and delayed[1] > 0:
            slopes.append((delayed[2] - clean[2]) / delayed[1])
            planted.append(delayed[1])
    if len(slopes) < MIN_PAIRS:
        return None
    chosen = random.Random(0)
    medians = sorted(median(chosen.choices(slopes, k=len(slopes))) for _ in range(_RESAMPLED))
    low, high = medians[int(0.025 * _RESAMPLED)], medians[int(0.975 * _RESAMPLED)]
    return Effect(len(slopes), mean(planted), median(slopes), low, high)


def ranked(effects: Mapping[str, Effect]) -> list[tuple[str, Effect]]:
    """The places where a delay was planted, the one first that steps feel most for sure."""
    return sorted(effects.items(), key=lambda each: -each[1].low)
