"""Steps that take longer than others of the same run, at equal work: whether, where, and by how much."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from flagscale_perf.spine.averages import median
from flagscale_perf.spine.chance import MIN_FOR_RISE, PARTS, RISE, ends_of_line, medians_of_parts, rise_of
from flagscale_perf.spine.limits import Limit
from flagscale_perf.spine.shift import FOR_A_LINE, Shift, beyond_levels, beyond_line, shifts_of
from flagscale_perf.training.analysis.findings.anatomy import Anatomy

WORTH_A_LOOK = Limit(0.01, "share", "ours: of a step; steps that take so little longer are not worth a look")
_PLANTED = [0.0125 * 1.25**each for each in range(17)]  # shares of a step, to nearly a half
BURST = Limit(32, "steps", "ours, or a quarter of the run: what is slow at its end for less may be over soon")


@dataclass(frozen=True)
class Slowdown:
    """Steps that take longer than others of the same run.

    Attributes:
        course: the steps, or means of some that follow one another.
        changes: all of the run, in order, also those back to faster steps.
        clearest: the one of them that is the greatest for certain.
        slow: places in `course` of those that take longer than the fastest stretch.
        usual_ns, slow_ns: time of a step of the fastest stretch, and of the slowest.
        excess: what all of them take longer, as a share of the whole time.
        is_gradual: a line fits as well as levels do.
    """

    course: Anatomy
    changes: Sequence[Shift]
    clearest: Shift
    slow: Sequence[int]
    usual_ns: float
    slow_ns: float
    excess: float
    is_gradual: bool

    @property
    def span(self) -> tuple[int, int]:
        """First and last iteration of the slow ones."""
        first, last = self.slow[0], self.slow[-1]
        begin = self.course.steps[first - 1].iteration + 1 if first else self.course.steps[0].iteration
        return begin, self.course.steps[last].iteration

    @property
    def limits(self) -> tuple[float, float]:
        """Between which the share lies that a slow step takes longer; as sure as the clearest change is."""
        whole, change = self.slow_ns / self.usual_ns - 1, self.clearest
        least, most = sorted(end / (change.after - change.before) for end in (change.least, change.most))
        return max(0.0, whole * least), whole * most

    def longer(self, column: Sequence[int]) -> float:
        """What a column of the steps is longer by in the slow ones, median against median."""
        usual, slow = self._sides(column)
        return median(slow) - median(usual)

    @property
    def is_known(self) -> bool:
        """Whether the change is above the limit for certain, and known to a factor of four."""
        least, most = self.limits
        return least >= WORTH_A_LOOK.value and least >= most / 4

    @property
    def comes_and_goes(self) -> bool:
        """Whether the fastest tenth of the slow steps is nearly as fast as that of the others: in bursts."""
        if self.is_gradual:
            return False
        usual, slow = (sorted(side)[len(side) // 10] for side in self._sides(at_equal_work(self.course)))
        return slow - usual < (self.slow_ns - self.usual_ns) / 4

    def _sides(self, column: Sequence[float]) -> tuple[list[float], list[float]]:
        """What a column has in the other steps, and in the slow ones."""
        slow = set(self.slow)
        sides: tuple[list[float], list[float]] = ([], [])
        for at, value in enumerate(column):
            sides[at in slow].append(value)
        return sides


def slowdown_of(course: Anatomy) -> Slowdown | None:
    """None where the steps' times change by no more than chance may do, at equal work."""
    times = at_equal_work(course)
    numbers = [step.iteration for step in course.steps]
    found = shifts_of(times, numbers, WORTH_A_LOOK.value)
    if not found:
        return _gradual(course, times)
    edges = [0, *(change.place for change in found), len(times)]
    levels = [median(times[first:end]) for first, end in pairwise(edges)]
    usual = min(levels)
    parts: list[tuple[int, int, float]] = []
    for is_slow, group in groupby(
        zip(edges, edges[1:], levels, strict=False), lambda part: part[2] > usual * (1 + WORTH_A_LOOK.value)
    ):
        together = list(group)
        if is_slow and together[0][0] and lasts(course, together[0][0], together[-1][1]):
            parts += together
    if not parts:
        return _gradual(course, times)
    excess = sum((level - usual) * (end - first) for first, end, level in parts)
    return Slowdown(
        course,
        found,
        max(found, key=lambda change: max(change.least, -change.most)),
        [at for first, end, _ in parts for at in range(first, end)],
        usual,
        max(level for *_, level in parts),
        excess / sum(times),
        _is_line(times, edges, levels),
    )


def lasts(course: Anatomy, first: int, end: int) -> bool:
    """Whether steps are slow for longer than a burst, and for an eighth of the run if they are not to its
    end.
    """
    count = len(course.steps)
    slow = course.steps[end - 1].iteration - course.steps[first].iteration + 1
    if end < count:
        return end - first >= count / 8 and slow >= BURST.value
    return slow >= min(BURST.value, (course.steps[-1].iteration - course.steps[0].iteration) / 4)


def _gradual(course: Anatomy, times: Sequence[float]) -> Slowdown | None:
    """Steps that take longer and longer; None for chance."""
    line = _rising(times)
    if line is None:
        return None
    first, last, off = line
    count, slope = len(times), (last - first) / (PARTS - 1)
    begun, ended = course.steps[0].iteration, course.steps[-1].iteration
    change = Shift(begun, first, last, 1, begun, ended, last - first - off, last - first + off)
    begin = max(0.0, first - slope / 2)  # of its first step
    excess = max(0.0, (first + last) / 2 - begin) * count / sum(times)
    return Slowdown(course, [change], change, range(count // 2, count), first, last, excess, True)


def _rising(times: Sequence[float]) -> tuple[float, float, float] | None:
    """First and last value of a line through the medians of sixteen parts, and how far off it they are, where
    they rise by more than chance; None where they do not.
    """
    if len(times) < MIN_FOR_RISE:
        return None
    parts = medians_of_parts(times)
    first, last = ends_of_line(parts)
    if rise_of(parts) < RISE.value or last - first <= WORTH_A_LOOK.value * first:
        return None
    slope = (last - first) / (PARTS - 1)
    return first, last, 2 * median(abs(part - first - slope * at) for at, part in enumerate(parts))


def at_equal_work(course: Anatomy) -> list[float]:
    """Times of the steps; where these differ in FLOPs or tokens, of as much work as the median one has."""
    work = [step.tokens if step.model_flops is None else step.model_flops for step in course.steps]
    times = [float(step.iteration_ns) for step in course.steps]
    if not work or min(work) <= 0 or min(work) == max(work):
        return times
    usual = median(work)
    return [time * usual / own for time, own in zip(times, work, strict=True)]


def _is_line(times: Sequence[float], edges: Sequence[int], levels: Sequence[float]) -> bool:
    """Whether a line is as near to the times as rising levels are."""
    if len(levels) < 3 or list(levels) != sorted(levels):
        return False
    line = sum(map(abs, beyond_line(times)))
    stairs = sum(
        abs(time - level)
        for (one, end), level in zip(pairwise(edges), levels, strict=True)
        for time in times[one:end]
    )
    return line <= 1.1 * stairs


def least_found(times: Sequence[float], changes: Sequence[Shift]) -> float:
    """From which share of a step on a change would have been found in these times: halfway, and along a line
    where they are `FOR_A_LINE`. Upwards and downwards, as one that they hide adds to the one and takes from
    the other; the changes that are known are taken out first. Infinite where that is above a half.
    """
    usual = median(times)
    even = [usual + off for off in beyond_levels(times, [0, *(one.place for one in changes), len(times)])]
    at = bisect_left(_PLANTED, True, key=lambda size: _is_found(even, size * usual))
    return _PLANTED[at] if at < len(_PLANTED) else math.inf


def _is_found(times: Sequence[float], more: float) -> bool:
    count = len(times)
    for side in (times, times[::-1]):
        halfway = [time + more * (2 * at >= count) for at, time in enumerate(side)]
        along = [time + more * at / count for at, time in enumerate(side)]
        for one in (halfway, along)[: 1 + (count >= FOR_A_LINE)]:
            if _rising(one) is None and not shifts_of(one, range(count), WORTH_A_LOOK.value):
                return False
    return True
