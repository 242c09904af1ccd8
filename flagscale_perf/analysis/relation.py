"""The offsets between two clocks that bounds leave possible: an interval at every time, and the drift."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from flagscale_perf.spine.clock import NS_PER_S

MAX_DRIFT_PPM = 200.0  # between two clocks; crystals keep within 100
# A drift is not constant: temperature, and NTP, which corrects a clock's rate. It may change by more than the
# least of these that fits: by `MARGIN` times as much and, up to what is usual, by what a wide interval hides.
WANDERS_PPM, MARGIN = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0), 3.0
HIDDEN, USUAL_PPM = 8.0, 30.0
NS_PER_S_IN_PPM = 1000.0
_BUCKETS, _TRIED, _STEPS, _LEAST_STEP_S = 256, 16, 1024, 0.1
_GRAIN_NS = 1.0  # marks are whole

_Points = Sequence[tuple[float, float]]  # seconds and nanoseconds


class Relation:
    """What has to be added to marks of one clock to get those of another, as a function of the former.

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
        self._sides = [
            [
                ((at - self.first_ns) / NS_PER_S, sign * (value - self._base_ns))
                for at, value in sorted(bounds)
            ]
            for bounds, sign in ((highs, 1.0), (lows, -1.0))
        ]
        self._span_s = max(side[-1][0] for side in self._sides) or 1.0
        self._step_s = max(self._span_s / _STEPS, _LEAST_STEP_S)
        self._tried = [(self._span_s * place / _TRIED) for place in range(_TRIED + 1)]
        self._fits: dict[int, _Fit] = {}
        self._slope = 0.0
        self._kept = self._strictest()
        rough = (fit for each in WANDERS_PPM if (fit := self._fit(self._span_s / 2, each)))
        if (fit := next(rough, None)) is not None:  # what is left beside a line loses less when it is thinned
            self._slope = sum(fit.slope) / 2
            self._kept = self._strictest()
        self._wander_ppm = self._wander()
        self.drift_ppm = self._drift()

    def _wander(self) -> float:
        """By how much the drift may change. Raises ValueError where no line fits however much that is."""
        for least_ppm in WANDERS_PPM:
            found = [fit for s in self._tried if (fit := self._fit(s, least_ppm))]
            if len(found) == len(self._tried):
                width = max(fit.offset[1] - fit.offset[0] for fit in found)
                hidden_ppm = HIDDEN * width / self._span_s / NS_PER_S_IN_PPM
                return max(MARGIN * least_ppm, min(hidden_ppm, USUAL_PPM))
        raise ValueError("these bounds contradict one another")

    def _drift(self) -> tuple[float, float]:
        (low, high), (last_low, last_high) = map(self._interval, (self.first_ns, self.last_ns))
        slowest, fastest = (end + self._slope for end in self._slopes)
        return (
            max((last_low - high) / self._span_s, slowest) / NS_PER_S_IN_PPM,
            min((last_high - low) / self._span_s, fastest) / NS_PER_S_IN_PPM,
        )

    def _strictest(self) -> list[_Points]:
        """The strictest bound in each stretch of time: to leave some out makes the interval wider, never
        wrong. By what is left of them beside the line with this slope.
        """
        made: list[_Points] = []
        for points, sign in zip(self._sides, (1.0, -1.0), strict=True):
            least: dict[int, tuple[float, float]] = {}
            for s, value in points:
                bucket, left = int(s / self._span_s * _BUCKETS), value - sign * self._slope * s
                if bucket not in least or left < least[bucket][1]:
                    least[bucket] = s, left
            made.append([*least.values()])
        return made

    def _fit(self, at_s: float, wander_ppm: float) -> _Fit | None:
        """The extremes of all lines that fit, or None. In the plane of slope and offset at that time they are
        a polygon, cut out bound by bound. A bound at another time is as much less strict as the slope may
        have wandered in between.
        """
        wander = wander_ppm * NS_PER_S_IN_PPM
        sides = [
            [(s - at_s, value + wander * abs(s - at_s) + _GRAIN_NS) for s, value in points]
            for points in self._kept
        ]
        flat, steep = (end * MAX_DRIFT_PPM * NS_PER_S_IN_PPM - self._slope for end in (-1, 1))
        far = max(abs(value) + max(-flat, steep) * abs(s) for side in sides for s, value in side) + 1
        corners = [(flat, -far), (steep, -far), (steep, far), (flat, far)]
        for side, sign in zip(sides, (1.0, -1.0), strict=True):
            for s, value in _lower_hull(side):
                corners = _cut(corners, (sign * s, sign), value)
        if not corners:
            return None
        slopes, offsets = zip(*corners, strict=True)
        return _Fit((min(offsets), max(offsets)), (min(slopes), max(slopes)))

    def _at(self, s: float) -> _Fit:
        widest = (self._wander_ppm * each for each in (1, 10, 100))
        found = next((fit for each in widest if (fit := self._fit(s, each))), None)
        most, least = (max(value for _, value in side) for side in self._kept)
        return found or _Fit((-least, most), (0.0, 0.0))

    @cached_property
    def _slopes(self) -> tuple[float, float]:
        """The least and the greatest at any time."""
        low, high = self._at(self._span_s / 2).slope
        wander = self._wander_ppm * NS_PER_S_IN_PPM
        return low - wander, high + wander

    def _interval(self, at_ns: int) -> tuple[float, float]:
        """The least and the most to add at this mark, beyond the base."""
        s = (at_ns - self.first_ns) / NS_PER_S
        within_s = min(max(s, 0.0), self._span_s)
        place = math.floor(within_s / self._step_s)
        for each in (place, place + 1):
            if each not in self._fits:
                self._fits[each] = self._at(each * self._step_s)
        part = within_s / self._step_s - place
        ends = zip(self._fits[place].offset, self._fits[place + 1].offset, strict=True)
        low, high = (self._slope * s + before + part * (behind - before) for before, behind in ends)
        between = self._wander_ppm * NS_PER_S_IN_PPM * self._step_s / 2
        away = [(s - within_s) * slope for slope in self._slopes]
        return low - between + min(away), high + between + max(away)

    @cached_property
    def constant_ns(self) -> int | None:
        """One offset for all marks where one fits: so all distances on the clock stay what they are."""
        found = [self._interval(self.first_ns + round(s * NS_PER_S)) for s in self._tried]
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


class _Fit(NamedTuple):
    """The extremes of all lines that fit: offset at one time in ns, slope in ns/s."""

    offset: tuple[float, float]
    slope: tuple[float, float]


def relation_of(lows: Sequence[tuple[int, int]], highs: Sequence[tuple[int, int]]) -> Relation | None:
    """None where there are no bounds on one side, or where no clock fits between them."""
    try:
        return Relation(lows, highs) if lows and highs else None
    except ValueError:
        return None


def _lower_hull(points: _Points) -> _Points:
    """Of these points in the order of time, those that some line touches from below."""
    hull: list[tuple[float, float]] = []
    for x, y in points:
        while len(hull) > 1:
            (x1, y1), (x2, y2) = hull[-2:]
            if (x2 - x1) * (y - y1) > (y2 - y1) * (x - x1):
                break
            hull.pop()
        hull.append((x, y))
    return hull


def _cut(
    corners: Sequence[tuple[float, float]], normal: tuple[float, float], most: float
) -> list[tuple[float, float]]:
    """The part of a convex polygon where `normal` times the point is `most` at most."""
    over = [normal[0] * x + normal[1] * y - most for x, y in corners]
    made = []
    for place, ((x, y), own) in enumerate(zip(corners, over, strict=True)):
        (x1, y1), before = corners[place - 1], over[place - 1]
        if (own > 0) != (before > 0):
            part = before / (before - own)
            made.append((x1 + part * (x - x1), y1 + part * (y - y1)))
        if own <= 0:
            made.append((x, y))
    return made
