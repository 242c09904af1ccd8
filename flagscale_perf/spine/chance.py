"""How likely it is that what was seen is chance: of counts, and of slow steps at even distances."""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from flagscale_perf.spine.averages import median
from flagscale_perf.spine.limits import Limit

CHANCE = Limit(
    0.001,
    "share",
    "ours: of runs without a cause, those in which chance alone looks like one; "
    "divided among everything that was looked at",
)
MIN_HITS = Limit(6, "", "ours: five distances that agree; of fewer, chance gives some in every run")
HIT_SHARE = Limit(0.8, "share", "ours: of the steps at which a period says that one is slow")
PERIOD_TOLERANCE = Limit(
    0.05,
    "share",
    "ours: of a distance, rounded down, and 1 from 8 steps on; what counts work, not steps, drifts",
)
RISE = Limit(
    4.0, "times", "Mann-Kendall, of sixteen medians: standard deviations; 1 of 15,000 runs by chance"
)
PARTS = 16  # of a run, whose medians are tested for a rise
MIN_FOR_RISE = 4 * PARTS  # steps: of fewer, a part's median is no more than a step of it
MAX_PERIOD = 256
SURE_STEPS = 6  # fewer have no interval that holds their median 19 times of 20
DOUBT = 0.05
_MOST_SHARE = 1 - 2**-53


def median_within(values: Sequence[float]) -> tuple[float, float] | None:
    """Between which two of these values the median of all such values lies, 19 times of 20, whatever their
    distribution (a sign test); None for fewer than `SURE_STEPS`.
    """
    count = len(values)
    chances = accumulate(math.comb(count, below) / 2**count for below in range(count))
    outside = sum(chance <= DOUBT / 2 for chance in chances)  # so many on each side are left out
    if not outside:
        return None
    ordered = sorted(values)
    return ordered[outside - 1], ordered[count - outside]


def binomial_tail(hits: int, trials: int, chance: float) -> float:
    """How likely at least so many hits are."""
    if hits <= 0:
        return 1.0
    if not 0 < chance < 1:
        return float(chance >= 1)
    logs = (
        math.lgamma(trials + 1)
        - math.lgamma(count + 1)
        - math.lgamma(trials - count + 1)
        + count * math.log(chance)
        + (trials - count) * math.log1p(-chance)
        for count in range(hits, trials + 1)
    )
    return min(1.0, math.fsum(map(math.exp, logs)))


def both(chance: float, other: float) -> float:
    """Fisher: how likely two observations that do not depend on one another are both so unlikely."""
    product = chance * other
    return product * (1 - math.log(product)) if product > 0 else 0.0


class Period(NamedTuple):
    """Slow steps at even distances.

    Attributes:
        distance: iterations from one to the next, the median.
        hits: iterations of the slow ones.
        chance: that one like it is anywhere in steps that are slow at random.
    """

    distance: int
    hits: list[int]
    chance: float


def period_of(slow: Sequence[int], span: range) -> Period | None:
    """The least likely period of slow iterations, in ascending order, among all the iterations of `span`.

    Every distance is tried from every slow iteration of the first period on. Where slow iterations come at
    random, each of the places that a period predicts has one as often as any other place, so that the number
    of hits is binomial; the chance is that, times how many periods were tried.
    """
    found, best, tried = set(slow), None, 0
    longest = min(MAX_PERIOD, len(span) // MIN_HITS.count)
    for distance in range(2, longest + 1):
        offsets = _offsets(distance)
        at_random = 1 - (1 - len(found) / len(span)) ** len(offsets)
        tried += distance
        for start in (place for place in slow if place < span.start + distance):
            hits, places = _followed(start, distance, offsets, found, span.stop)
            if len(hits) < MIN_HITS.count or len(hits) - 1 < HIT_SHARE.value * places:
                continue
            chance = binomial_tail(len(hits) - 1, places, at_random)
            if best is None or chance < best.chance:
                best = Period(distance, hits, chance)
    if best is None:
        return None
    distances = sorted(after - before for before, after in zip(best.hits, best.hits[1:], strict=False))
    return Period(distances[len(distances) // 2], best.hits, min(1.0, best.chance * tried))


def _offsets(distance: int) -> list[int]:
    """The amounts by which a distance may differ from the others, the smallest first."""
    tolerance = max(int(PERIOD_TOLERANCE.value * distance), int(distance >= 8))
    return sorted(range(-tolerance, tolerance + 1), key=abs)


def _followed(
    start: int, distance: int, offsets: Iterable[int], found: set[int], stop: int
) -> tuple[list[int], int]:
    """Slow iterations at these distances, each measured from the last one, and at how many places they were
    looked for; ends early where most of them have none.
    """
    hits, places, expected = [start], 0, start + distance
    while expected < stop:
        places += 1
        near = next((expected + offset for offset in offsets if expected + offset in found), None)
        if near is not None:
            hits.append(near)
        elif places > MIN_HITS.count and 2 * len(hits) < places:
            break
        expected = (expected if near is None else near) + distance
    return hits, places


class Choice:
    """Which of a stream of any length are in a sample of bounded size: all of them up to its size, then a
    uniform choice.

    The choice is seeded, so the same stream gives the same sample: a report rebuilt from the run file equals
    the writer's.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._random = random.Random(0)
        self._seen = 0
        self._share = 1.0
        self._skip(size - 1)

    def places(self, count: int) -> list[tuple[int, int]]:
        """Which of the stream's next `count` to keep, each with its place in the sample."""
        seen, self._seen = self._seen, self._seen + count
        chosen = [(number, seen + number) for number in range(min(self._size - seen, count))]
        while self._next < self._seen:
            chosen.append((self._next - seen, int(self._random.random() * self._size)))
            self._skip(self._next)
        return chosen

    def _skip(self, number: int) -> None:
        """Draws which one behind this one is kept next, instead of asking each whether it is: algorithm L of
        K.-H. Li, "Reservoir-sampling algorithms of time complexity O(n(1+log(N/n)))" (1994).
        """
        one, other = math.log(1 - self._random.random()), math.log(1 - self._random.random())
        self._share = min(self._share * math.exp(one / self._size), _MOST_SHARE)
        self._next = number + 1 + int(other / math.log1p(-self._share))


def rise_of(values: Sequence[float]) -> float:
    """Mann-Kendall: by how many standard deviations more of the later values are greater than the earlier
    ones than where their order is chance.
    """
    count, score, before = len(values), 0, list[float]()  # the earlier ones, sorted
    for value in values:
        score += bisect_left(before, value) + bisect_right(before, value) - len(before)
        insort(before, value)
    return score / math.sqrt(count * (count - 1) * (2 * count + 5) / 18) if count > 1 else 0.0


def edges_of_parts(count: int) -> list[int]:
    """Where `PARTS` equally long parts of so many values begin, and the end."""
    return [count * part // PARTS for part in range(PARTS + 1)]


def medians_of_parts(values: Sequence[float]) -> list[float]:
    """Medians of `PARTS` equally long parts, of at least as many values."""
    return [median(values[first:end]) for first, end in pairwise(edges_of_parts(len(values)))]


def ends_of_line(values: Sequence[float]) -> tuple[float, float]:
    """Theil-Sen: first and last value of a line through values at even distances, two at least, that a few
    values far from it do not move.
    """
    places = range(len(values))
    slope = median(
        (values[later] - values[before]) / (later - before) for later in places for before in range(later)
    )
    first = median(value - slope * place for place, value in enumerate(values))
    return first, first + slope * (len(values) - 1)


def excess_of(values: Sequence[float], others: Sequence[float]) -> float:
    """Mann-Whitney: by how many standard deviations more often a value is greater than one of the others than
    where both are of one kind.
    """
    count, against = len(values), len(others)
    if not count or not against:
        return 0.0
    ordered = sorted(others)
    greater = sum(bisect_left(ordered, value) + bisect_right(ordered, value) for value in values) / 2
    return (greater - count * against / 2) / math.sqrt(count * against * (count + against + 1) / 12)
