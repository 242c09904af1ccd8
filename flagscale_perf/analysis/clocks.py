"""How the clocks of several machines lie to one another, by evidence: a message ends on one after it began on
the other.

Messages both ways bound the offset between two monotonic clocks from both sides, whatever the wall clocks say.
All offsets that fit between the bounds are the interval: nothing here is a guess of how long a message takes.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import NamedTuple

from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.spine.session import labels_of

MAX_DRIFT_PPM = 200.0  # between two clocks; crystals keep within 100
# A drift is not constant: temperature, and NTP, which corrects a clock's rate. It may change by more than the
# least of these that fits: by some times as much, and, up to what is usual, by what a wide interval would hide.
WANDERS_PPM, MARGIN = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0), 3.0
HIDDEN, USUAL_PPM = 8.0, 30.0
NS_PER_S_IN_PPM = 1000.0
_BUCKETS, _TRIED, _STEPS, _LEAST_STEP_S = 256, 16, 1024, 0.1
_GRAIN_NS = 1.0  # marks are whole
_UNITS = ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (1000, "us"), (1, "ns"))

Move = Callable[[int], int]  # of a mark onto another clock
_Points = Sequence[tuple[float, float]]  # seconds and nanoseconds


class Bound(NamedTuple):
    """A moment on one clock, and one on another that cannot have been before it.

    Attributes:
        clock: as `clock_of` names it, or the name of a machine of which there is no run file.
        at_ns: monotonic mark there: the message began.
        other, other_ns: of the clock where it has ended, and when.
    """

    clock: str
    at_ns: int
    other: str
    other_ns: int


def none_left_before(sides: Sequence[tuple[str, int, int]]) -> Iterator[Bound]:
    """What an operation says that nobody leaves before all have come: of each side its clock, begin and end.
    Of many machines each is related to the first.
    """
    begun: dict[str, int] = {}
    ended: dict[str, int] = {}
    for clock, begin_ns, end_ns in sides:
        begun[clock] = max(begun.get(clock, begin_ns), begin_ns)
        ended[clock] = min(ended.get(clock, end_ns), end_ns)
    first, *others = begun
    for other in others:
        yield Bound(first, begun[first], other, ended[other])
        yield Bound(other, begun[other], first, ended[first])


def clock_of(header: RunHeader) -> str:
    """Marks of run files with the same one are on the same clock: that of one start of one machine."""
    return header.boot_id or str(header.host)


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
            [((at - self.first_ns) / NS_PER_S, sign * (value - self._base_ns)) for at, value in sorted(bounds)]
            for bounds, sign in ((highs, 1.0), (lows, -1.0))
        ]
        self._span_s = max(side[-1][0] for side in self._sides) or 1.0
        self._step_s = max(self._span_s / _STEPS, _LEAST_STEP_S)
        self._slope = 0.0
        self._kept = self._strictest()
        rough = (fit for each in WANDERS_PPM if (fit := self._fit(self._span_s / 2, each)))
        if (fit := next(rough, None)) is not None:  # what is left beside a line loses less when it is thinned
            self._slope = sum(fit.slope) / 2
            self._kept = self._strictest()
        self._tried = [(self._span_s * place / _TRIED) for place in range(_TRIED + 1)]
        fits = ((each, [self._fit(s, each) for s in self._tried]) for each in WANDERS_PPM)
        least_ppm, found = next(((each, made) for each, made in fits if all(made)), (0.0, []))
        if not found:
            raise ValueError("these bounds contradict one another")
        width = max(fit.offset[1] - fit.offset[0] for fit in found if fit)
        hidden_ppm = HIDDEN * width / self._span_s / NS_PER_S_IN_PPM
        self._wander_ppm = max(MARGIN * least_ppm, min(hidden_ppm, USUAL_PPM))
        self._fits: dict[int, _Fit] = {}
        (low, high), (last_low, last_high) = map(self._interval, (self.first_ns, self.last_ns))
        slopes, wander = self._at(self._span_s / 2).slope, self._wander_ppm * NS_PER_S_IN_PPM
        slowest, fastest = slopes[0] + self._slope - wander, slopes[1] + self._slope + wander
        self.drift_ppm = (
            max((last_low - high) / self._span_s, slowest) / NS_PER_S_IN_PPM,
            min((last_high - low) / self._span_s, fastest) / NS_PER_S_IN_PPM,
        )

    def _strictest(self) -> list[_Points]:
        """The strictest bound in each stretch of time: to leave some out makes the interval wider, never
        wrong. By what is left of them beside the line with this slope.
        """
        made = []
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

    def _interval(self, at_ns: int) -> tuple[float, float]:
        """The least and the most to add at this mark, beyond the base."""
        s = (at_ns - self.first_ns) / NS_PER_S
        place = math.floor(s / self._step_s)
        for each in (place, place + 1):
            if each not in self._fits:
                self._fits[each] = self._at(each * self._step_s)
        part = s / self._step_s - place
        ends = zip(self._fits[place].offset, self._fits[place + 1].offset, strict=True)
        low, high = (self._slope * s + before + part * (behind - before) for before, behind in ends)
        between = self._wander_ppm * NS_PER_S_IN_PPM * self._step_s / 2
        return low - between, high + between

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


class Clocks:
    """Brings marks of several machines onto the clock of the first one: by evidence where messages went both
    ways, directly or over other machines, else by their times of day.
    """

    def __init__(
        self, headers: Sequence[RunHeader], evidence: Callable[[], Iterable[Bound]] = tuple
    ) -> None:
        """`headers` of the run files; `evidence` is asked for once, when another clock is first looked at."""
        self._first = headers[0]
        self._headers: dict[str, RunHeader] = {}
        for header in headers:
            self._headers.setdefault(clock_of(header), header)
        clocks = defaultdict(list)
        for clock, header in self._headers.items():
            clocks[str(header.host)].append(clock)
        self._clock_of_host = {host: found[0] for host, found in clocks.items() if len(found) == 1}
        self._evidence = evidence
        self._known: dict[tuple[str, str], Relation | None] = {}

    def mover(self, clock: str) -> Move | None:
        """Brings marks of this clock onto the first one; None where these are the same, and for a machine
        without a run file and evidence.
        """
        clock = self._clock_of_host.get(clock, clock)
        way = self._way(clock)
        if way == []:
            return None
        constant_ns = self._by_wall_ns(clock) if way is None else _sum_of(each.constant_ns for each in way)
        if constant_ns is not None:
            return constant_ns.__add__
        return None if way is None else partial(_moved, way)

    def uncertainty_ns(self, clock: str, at_ns: int) -> int | None:
        """By how much that may be wrong; None where it is not known."""
        way = self._way(self._clock_of_host.get(clock, clock))
        if way is None:
            return None
        total_ns = 0
        for relation in way:
            total_ns += relation.uncertainty_ns(at_ns)
            at_ns += relation.offset_ns(at_ns)
        return total_ns

    def lines(self) -> list[str]:
        """One line about each other clock."""
        others = {*self._headers, *self._pairs_of} - {clock_of(self._first)}
        return [self._line(clock) for clock in sorted(others, key=self._name)]

    def _by_wall_ns(self, clock: str) -> int | None:
        if clock not in self._headers:
            return None
        own, first = self._headers[clock], self._first
        return (own.start_wall_ns - own.start_mono_ns) - (first.start_wall_ns - first.start_mono_ns)

    @cached_property
    def _pairs(self) -> dict[tuple[str, str], list[tuple[int, int]]]:
        """Marks of messages, by the clock where they began and the one where they ended."""
        found = defaultdict(list)
        if len(self._headers) > 1 or self._evidence is not tuple:
            for bound in self._evidence():
                begun, ended = (self._clock_of_host.get(each, each) for each in (bound.clock, bound.other))
                if begun != ended:
                    found[begun, ended].append((bound.at_ns, bound.other_ns))
        return found

    @cached_property
    def _pairs_of(self) -> Mapping[str, Mapping[str, int]]:
        """For each clock the others with messages both ways, and how many: of the rarer way."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for (one, other), marks in self._pairs.items():
            found[one][other] = min(len(marks), len(self._pairs.get((other, one), ())))
        return found

    @cached_property
    def _parents(self) -> dict[str, str]:
        """For each clock the next one on the way to the first: fewest steps, then most messages."""
        first = clock_of(self._first)
        parents, reached = {first: first}, [first]
        for clock in reached:
            near = self._pairs_of.get(clock, {})
            for other in sorted(near, key=lambda each: (-near[each], each)):
                if other not in parents and self._relation(other, clock) is not None:
                    parents[other] = clock
                    reached.append(other)
        return parents

    def _way(self, clock: str) -> list[Relation] | None:
        """From this clock to the first; None where there is none."""
        way = []
        if clock == clock_of(self._first):
            return way
        while clock in self._parents and clock != self._parents[clock]:
            relation = self._relation(clock, self._parents[clock])
            if relation is None:
                return None
            way.append(relation)
            clock = self._parents[clock]
        return way or None

    def _relation(self, clock: str, to: str) -> Relation | None:
        key = clock, to
        if key not in self._known:
            lows = [(ended, begun - ended) for begun, ended in self._pairs.get((to, clock), ())]
            highs = [(begun, ended - begun) for begun, ended in self._pairs.get(key, ())]
            self._known[key] = relation_of(lows, highs)
        return self._known[key]

    def _name(self, clock: str) -> str:
        if clock not in self._headers:
            return clock
        host = str(self._headers[clock].host)
        return host if host in self._clock_of_host else f"{host}/{self._headers[clock].session_id}"

    def _line(self, clock: str) -> str:
        begin = f"clock of {self._name(clock)}: "
        way = self._way(clock)
        if way is None:
            return f"{begin}{self._unknown(clock)}"
        at_ns = way[0].first_ns
        offset_ns, uncertainty_ns = _moved(way, at_ns) - at_ns, self.uncertainty_ns(clock, at_ns) or 0
        first = self._first
        wall_ns = at_ns + offset_ns - first.start_mono_ns + first.start_wall_ns
        low, high = (sum(end) for end in zip(*(relation.drift_ppm for relation in way), strict=True))
        drift = f"drift {-(low + high) / 2:+.1f} +- {(high - low) / 2:.1f} ppm"
        over = ", over other machines" if len(way) > 1 else ""
        return (
            f"{begin}{_seconds(-offset_ns, uncertainty_ns)} at {labels_of(first).at(wall_ns):%H:%M:%S}, {drift}"
            f" ({sum(relation.messages for relation in way):,} messages both ways{over})"
        )

    def _unknown(self, clock: str) -> str:
        first = clock_of(self._first)
        counts = [len(self._pairs.get(key, ())) for key in ((first, clock), (clock, first))]
        if min(counts):
            why = f"{sum(counts):,} messages contradict one another"
        elif max(counts):
            why = f"{max(counts):,} messages one way, none back"
        else:
            why = f"no message between it and {self._name(first)}"
        wall_ns = self._by_wall_ns(clock)
        if wall_ns is None:
            return f"not known: {why}"
        return f"{-wall_ns / NS_PER_S:+,.3f} s +- unknown, wall clock ({why})"


def _moved(way: Iterable[Relation], at_ns: int) -> int:
    for relation in way:
        at_ns += relation.offset_ns(at_ns)
    return at_ns


def _sum_of(values: Iterable[int | None]) -> int | None:
    found = [*values]
    return None if None in found else sum(value or 0 for value in found)


def _seconds(offset_ns: int, uncertainty_ns: int) -> str:
    unit, name = next(
        ((unit, name) for unit, name in _UNITS if uncertainty_ns >= unit), (1, "ns")
    )
    shown = -(-uncertainty_ns // unit) if uncertainty_ns >= 10 * unit else -(-uncertainty_ns * 10 // unit) / 10
    decimals = {"s": 1, "ms": 4, "us": 6, "ns": 9}[name]
    return f"{offset_ns / NS_PER_S:+,.{decimals}f} s +- {shown:g} {name}"

