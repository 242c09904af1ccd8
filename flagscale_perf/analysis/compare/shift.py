"""Finds where a run changed within itself: the place whose two sides differ most, by ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flagscale_perf.analysis.compare import bootstrap

CHANCE = 0.001  # of a run that did not change, that it seems to
SMALLEST = 0.03  # a share, from which on a change within a run is worth a line
_EDGE = 5  # steps at least on each side


@dataclass(frozen=True)
class Shift:
    """A change that lasts: median time `before` up to the step `last_before`, and `after` it."""

    last_before: int
    before: float
    after: float


def shift_of(values: Sequence[float], numbers: Sequence[int]) -> Shift | None:
    """The change of a run whose steps have these times and numbers; None for one that did not.

    Pettitt's test (1979) for one change at an unknown place: the greatest sum of ranks before a place,
    against what it is where order is chance. Steps that remember each other count as fewer ones.
    """
    count = len(values)
    if count < 2 * _EDGE:
        return None
    score, place = _steepest(values)
    sides = values[:place], values[place:]
    before, after = map(bootstrap.median, sides)
    memory = bootstrap.memory_of([*(one - before for one in sides[0]), *(one - after for one in sides[1])])
    chance = 2 * math.exp(-6 * score**2 / (count**3 + count**2) / memory)
    if chance > CHANCE or abs(after - before) <= SMALLEST * min(abs(before), abs(after)):
        return None
    return Shift(numbers[place - 1], before, after)


def _steepest(values: Sequence[float]) -> tuple[float, int]:
    """The place before which ranks are farthest off their mean: twice how far, and the place."""
    count, off = len(values), 0.0
    best, place = -1.0, _EDGE
    for before, rank in enumerate(_ranks(values), start=1):
        off += 2 * rank - (count + 1)
        if _EDGE <= before <= count - _EDGE and abs(off) > best:
            best, place = abs(off), before
    return best, place


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks of the values from 1 on; equal values share theirs."""
    first: dict[float, int] = {}
    last: dict[float, int] = {}
    for rank, value in enumerate(sorted(values), start=1):
        first.setdefault(value, rank)
        last[value] = rank
    return [(first[value] + last[value]) / 2 for value in values]
