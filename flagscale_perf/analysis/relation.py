"""The offsets between two clocks that bounds leave possible: an interval at every time, and the drift."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

from flagscale_perf.spine.clock import NS_PER_S

MAX_DRIFT_PPM = 200.0  # between two clocks; crystals keep within 100
# A drift is not constant: temperature, and NTP, which corrects a clock's rate. It may change by more than the
# least that fits: by `MARGIN` times as much and, up to what is usual, by what a wide interval hides.
LEAST_PPM, MARGIN = 0.3, 3.0
HIDDEN, USUAL_PPM = 8.0, 30.0
NS_PER_S_IN_PPM = 1000.0
_BUCKETS, _TRIED, _TURNS = 256, 16, 4
_GRAIN_NS = 1.0  # marks are whole

_Points = Sequence[tuple[float, float]]  # seconds and nanoseconds, in the order of time


class Relation:
    """What has to be added to marks of one clock to get those of another, as a function of the former.

    What is added grows by nearly the same every second, so a bound at one time bounds all others: the less,
    the further they are away.

    Attributes:
        first_ns, last_ns: marks of the first and the last message.
        messages: how many it is made of.
        drift_ppm: the least and the most by which it grows, on average over this time.
    """

    def __init__(self, lows: Sequence[tuple[int, int]], highs: Sequence[tuple[int, int]]) -> None:
        """Of bounds on both sides: marks, and the least or the most to add there. Raises ValueError where no
        clock fits whose drift is `MAX_DRIFT_PPM` at most.
        """
        self.first_ns = min(min(lows), min(highs))[0]
        self.last_ns = max(max(lows), max(highs))[0]
        self.messages = len(lows) + len(highs)
        self._base_ns = lows[0][1]
        self._span_s = (self.last_ns - self.first_ns) / NS_PER_S or 1.0
        self._tried = [self._span_s * place / _TRIED for place in range(_TRIED + 1)]
        self._slope = 0.0
        for _ in range(2):  # what is left beside a line loses less when it is thinned
            sides = self._strictest(lows, 1.0), self._strictest(highs, -1.0)
            slowest, fastest = _slopes(*sides, MAX_DRIFT_PPM * NS_PER_S_IN_PPM, self._slope)
            before, self._slope = self._slope, self._slope + (slowest + fastest) / 2
        self._slope = before  # which is what the sides lie beside
        least = max(0.0, slowest, -fastest)  # changes of the rate that no line does without
        if abs(self._slope) + least > MAX_DRIFT_PPM * NS_PER_S_IN_PPM:
            raise ValueError("these bounds contradict one another")
        steepest, usual = max(0.0, -slowest, fastest), USUAL_PPM * NS_PER_S_IN_PPM
        wander = hidden = MARGIN * max(LEAST_PPM * NS_PER_S_IN_PPM, least)
        for _ in range(_TURNS):  # a rate that changes more makes the interval wider, which hides more
            self._rate = steepest + max(wander, hidden)
            self._sides = [_Bounds(side, self._rate) for side in sides]
            width = max(high - low for low, high in map(self._at, self._tried))
            hidden = min(HIDDEN * width / self._span_s, usual)
        self.drift_ppm = self._drift()

    def _strictest(self, bounds: Sequence[tuple[int, int]], sign: float) -> _Points:
        """The strictest bound in each stretch of time, those from above turned round: to leave some out makes
        the interval wider, never wrong. By what is left of them beside the line with the slope.
        """
        most: dict[int, tuple[float, float]] = {}
        for at_ns, value in sorted(bounds):
            s = (at_ns - self.first_ns) / NS_PER_S
            left = sign * (value - self._base_ns - self._slope * s) - _GRAIN_NS
            bucket = int(s / self._span_s * _BUCKETS)
            if bucket not in most or left > most[bucket][1]:
                most[bucket] = s, left
        return [*most.values()]

    def _drift(self) -> tuple[float, float]:
        (low, high), (last_low, last_high) = map(self._at, (0.0, self._span_s))
        slowest = max((last_low - high) / self._span_s, self._slope - self._rate)
        fastest = min((last_high - low) / self._span_s, self._slope + self._rate)
        return slowest / NS_PER_S_IN_PPM, fastest / NS_PER_S_IN_PPM

    def _at(self, s: float) -> tuple[float, float]:
        """The least and the most to add so long after the first mark, beyond the base."""
        low, high = (side.at(s) for side in self._sides)
        return self._slope * s + low, self._slope * s - high

    def _interval(self, at_ns: int) -> tuple[float, float]:
        return self._at((at_ns - self.first_ns) / NS_PER_S)

    @cached_property
    def constant_ns(self) -> int | None:
        """One offset for all marks where one fits: so all distances on the clock stay what they are."""
        found = [*map(self._at, self._tried)]
        low, high = max(low for low, _ in found), min(high for _, high in found)
        return self._base_ns + round((low + high) / 2) if low <= high else None

    def offset_ns(self, at_ns: int) -> int:
        """What to add to this mark: the middle of what fits, or the same for all marks."""
        constant = self.constant_ns
        return self._base_ns + round(sum(self._interval(at_ns)) / 2) if constant is None else constant

    def uncertainty_ns(self, at_ns: int) -> int:
        """By how much that may be wrong."""
        low, high = self._interval(at_ns)
        own = self.offset_ns(at_ns) - self._base_ns
        return math.ceil(max(high - own, own - low))


class _Bounds:
    """Bounds from below, each of which holds at its time, and around it by `rate` less every second."""

    def __init__(self, points: _Points, rate: float) -> None:
        self._times, self._rate = [s for s, _ in points], rate
        self._before = [*accumulate((value + rate * s for s, value in points), max)]
        self._behind = [*accumulate((value - rate * s for s, value in reversed(points)), max)][::-1]

    def at(self, s: float) -> float:
        """The strictest of them there."""
        place = bisect_right(self._times, s)
        before = [self._before[place - 1] - self._rate * s] if place else []
        return max(before + [each + self._rate * s for each in self._behind[place : place + 1]])


def _slopes(lows: _Points, highs: _Points, most: float, slope: float) -> tuple[float, float]:
    """The least and the greatest slope beside `slope` of the lines that are `most` steep and lie between
    these bounds, the highs turned round; the former is the greater one where none does. Raises ValueError
    where two of one time leave no room.
    """
    slowest, fastest = -most - slope, most - slope
    for s, low in lows:
        for other_s, high in highs:
            if s > other_s:
                slowest = max(slowest, (low + high) / (s - other_s))
            elif s < other_s:
                fastest = min(fastest, (low + high) / (s - other_s))
            elif low + high > 0:
                raise ValueError("these bounds contradict one another")
    return slowest, fastest


def relation_of(lows: Sequence[tuple[int, int]], highs: Sequence[tuple[int, int]]) -> Relation | None:
    """None where there are no bounds on one side, or where no clock fits between them."""
    try:
        return Relation(lows, highs) if lows and highs else None
    except ValueError:
        return None
