"""Finds where a run changed within itself: the places whose two sides differ most, by ranks."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from operator import truediv

from flagscale_perf.spine.averages import median, scatter
from flagscale_perf.spine.bootstrap import memory_of
from flagscale_perf.spine.chance import CHANCE, PARTS, ends_of_line, medians_of_parts

WORTH_A_LINE = 0.03  # a share: of a comparison, or while a run lasts; a report looks for less
_EDGE = 5  # steps at least on each side
FOR_A_LINE = 40  # steps: fewer do not tell a line from what they remember
_LEVELS, _LEVEL_STEPS = 8, 16  # what steps remember is looked at beside the medians of so many parts
_OF_RANKS = 1.5  # times: what ranks of normal steps remember, against their signs, by which it is measured
_SURE = 1.96  # standard deviations, for 19 times of 20
_ALONE = 2.0  # times: what an end gains by its own median, against any other stretch as long
_NEAR = 6.0  # squared standard deviations below the steepest place: what is nearer may be the place


@dataclass(frozen=True)
class Shift:
    """A change that lasts.

    Attributes:
        last_before: number of the last step before it.
        earliest, latest: between which numbers that lies, some 19 times of 20.
        place: of the first step after it, from 0 on.
        before, after: median times of the steps on its sides, up to the next change.
        least, most: between which `after - before` lies, 19 times of 20, whatever the steps' distribution.
    """

    last_before: int
    before: float
    after: float
    place: int
    earliest: int
    latest: int
    least: float
    most: float


def shift_of(values: Sequence[float], numbers: Sequence[int], smallest: float = WORTH_A_LINE) -> Shift | None:
    """The change of a run whose steps have these times and numbers: of several the clearest; None for a run
    that did not change by more than `smallest`, a share, or by no more than chance may do.

    A rank sum test at every place, each against its own deviation, so that a change near an end is found,
    too; the chance of the greatest is Miller and Siegmund's (1982). An end of many steps that their ranks
    cannot speak for is a second look. Steps that remember each other count as fewer ones.
    """
    count = len(values)
    if count < 2 * _EDGE:
        return None
    scores = _scores(values)
    looks = {max(range(_EDGE, count - _EDGE + 1), key=lambda at: abs(scores[at])), *_at_an_end(values)}
    clear = {at: max(abs(scores[at]), _apart(values, at)) for at in {_fitted(values, at) for at in looks}}
    place = max(clear, key=lambda at: clear[at])
    sides = values[:place], values[place:]
    before, after = map(median, sides)
    if abs(after - before) <= smallest * min(abs(before), abs(after)):
        return None
    memory = _memory(values, place)
    if len(looks) * _chance(clear[place] / math.sqrt(memory), count) > CHANCE.value:
        return None
    least_near = scores[place] ** 2 - _NEAR * memory
    near = [at for at in range(1, count) if scores[at] ** 2 >= least_near]
    (low, high), (low_after, high_after) = (_within(side, memory) for side in sides)
    grown = after - before
    return Shift(
        last_before=numbers[place - 1],
        before=before,
        after=after,
        place=place,
        earliest=numbers[near[0] - 1],
        latest=numbers[near[-1] - 1],
        # Donner and Zou (2002): the limits of a difference from those of its sides
        least=grown - math.hypot(after - low_after, high - before),
        most=grown + math.hypot(high_after - after, before - low),
    )


def shifts_of(values: Sequence[float], numbers: Sequence[int], smallest: float = WORTH_A_LINE) -> list[Shift]:
    """Every change, in order: the clearest one, then those of the stretches on its sides; each as it is
    between its neighbours.
    """
    edges, unseen = {0, len(values)}, [(0, len(values))]

    @cache
    def within(first: int, end: int) -> Shift | None:
        return shift_of(values[first:end], numbers[first:end], smallest)

    while unseen:
        first, end = unseen.pop()
        if (found := within(first, end)) is not None:
            middle = first + found.place
            edges.add(middle)
            unseen += [(first, middle), (middle, end)]
    places = sorted(edges)
    return [
        replace(again, place=first + again.place)
        for first, end in zip(places, places[2:], strict=False)
        if (again := within(first, end)) is not None
    ]


def _scores(values: Sequence[float]) -> list[float]:
    """At each place, by how many standard deviations the ranks before it are off their mean."""
    count = len(values)
    usual = (count + 1) / 2
    offs = accumulate([rank - usual for rank in _ranks(values)])
    return [0.0, *map(truediv, offs, _deviations(count)), 0.0]


@lru_cache(maxsize=16)  # a search tries the same steps over and over, with other changes planted
def _deviations(count: int) -> list[float]:
    """Of the sum of the ranks before each place, of so many steps; an end has none."""
    return [math.sqrt(before * (count - before) * (count + 1) / 12) for before in range(1, count)]


def _at_an_end(values: Sequence[float]) -> list[int]:
    """The place near an end whose few steps gain most by a median of their own; none where another stretch
    as long gains half as much. The rank score of few of many is bounded, and chance may exceed it elsewhere.
    """
    count, middle = len(values), median(values)
    if count < PARTS * _EDGE:
        return []

    offs = [value - middle for value in values]

    def gain(first: int, end: int) -> float:
        side = offs[first:end]
        return sum(map(abs, side)) - _beyond_median(sorted(side))

    sizes = range(_EDGE, count // PARTS + 1)
    ends = [(gain(*end), *end) for size in sizes for end in ((0, size), (count - size, count))]
    most, first, end = max(ends)
    size = end - first
    others = range(size, count - 2 * size + 1, max(1, size // 2))
    is_alone = most > _ALONE * max(gain(at, at + size) for at in others)
    return [first or end] if is_alone else []


def _fitted(values: Sequence[float], place: int) -> int:
    """The place near this one whose sides are the nearest to their medians: of few steps on a side ranks take
    one of the others with them.
    """
    near = range(max(_EDGE, place - _EDGE), min(len(values) - _EDGE, place + _EDGE) + 1)
    before, after = sorted(values[: near[0]]), sorted(values[near[0] :])
    beyond = [_beyond_median(before) + _beyond_median(after)]
    for value in values[near[0] : near[-1]]:  # goes to the other side
        insort(before, value)
        del after[bisect_left(after, value)]
        beyond.append(_beyond_median(before) + _beyond_median(after))
    least = min(beyond) * (1 + 1e-9)  # neighbours often are as near, but for rounding: the first of them
    return next(at for at, each in zip(near, beyond, strict=True) if each <= least)


def _beyond_median(ordered: Sequence[float]) -> float:
    """What all of these are beyond their median, in ascending order."""
    half = len(ordered) // 2
    return sum(ordered[len(ordered) - half :]) - sum(ordered[:half])


def _chance(score: float, count: int) -> float:
    """How likely the greatest score is as great where order is chance."""
    if score < 2:
        return 1.0
    density = math.exp(-score * score / 2) / math.sqrt(2 * math.pi)
    inner = (count - _EDGE) / _EDGE
    return min(1.0, density * ((score - 1 / score) * 2 * math.log(inner) + 4 / score))


def _apart(values: Sequence[float], place: int) -> float:
    """By how many standard deviations the medians of both sides are apart: ranks alone cannot say so of a
    few steps. No more than two thirds of it, as few steps do not know their deviation well.
    """
    sides = values[:place], values[place:]
    beyond = beyond_levels(values, [0, place, len(values)])
    sigma = scatter(beyond, 0.0) * math.sqrt(math.pi / 2 * sum(1 / len(side) for side in sides))
    return abs(median(sides[1]) - median(sides[0])) / sigma / 1.5 if sigma else 0.0


def _memory(values: Sequence[float], place: int) -> float:
    """How many steps one stands for, by what is left beyond two levels, a line, or several levels where these
    are long enough to tell: the run may have changed more than once.
    """
    count = len(values)
    memory = memory_of(beyond_levels(values, [0, place, count]))
    memory *= 1 + 4 * memory / count  # a few steps show less of it than there is
    if count >= FOR_A_LINE:
        memory = min(memory, memory_of(beyond_line(values)))
    of_parts = memory_of(beyond_levels(values, [count * part // _LEVELS for part in range(_LEVELS + 1)]))
    if count >= _LEVELS * _LEVEL_STEPS * of_parts:
        memory = min(memory, of_parts)
    return 1 + _OF_RANKS * (memory - 1)


def beyond_line(values: Sequence[float]) -> list[float]:
    """What the values, sixteen at least, are beyond a line through the medians of sixteen parts."""
    count = len(values)
    first, last = ends_of_line(medians_of_parts(values))
    slope, middle = (last - first) / (count - count / PARTS), (count / PARTS - 1) / 2
    return [value - first - slope * (at - middle) for at, value in enumerate(values)]


def beyond_levels(values: Sequence[float], edges: Sequence[int]) -> list[float]:
    """What the values are beyond the median of their part."""
    parts = [values[first:end] for first, end in pairwise(edges)]
    return [value - middle for part in parts for middle in [median(part)] for value in part]


def _within(values: Sequence[float], memory: float) -> tuple[float, float]:
    """Between which of the values the median of all such ones lies, or their ends where they are few."""
    ordered, count = sorted(values), len(values)
    around = _SURE / 2 * math.sqrt(count * memory)
    low, high = math.floor(count / 2 - around), math.ceil(count / 2 + around) - 1
    return ordered[max(0, low)], ordered[min(count - 1, high)]


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks of the values from 1 on; equal values share theirs."""
    ordered, count = sorted(values), len(values)
    last = dict(zip(ordered, range(1, count + 1), strict=True))  # of equal ones the latter stays
    first = dict(zip(reversed(ordered), range(count, 0, -1), strict=True))
    return [(first[value] + last[value]) / 2 for value in values]
