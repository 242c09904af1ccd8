"""How the clocks of several machines lie to one another, by evidence: a message ends on one machine after it
began on the other.

Messages both ways bound the offset between two monotonic clocks from both sides, whatever wall clocks say.
All offsets that fit between the bounds are the interval: nothing here guesses how long a message takes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import NamedTuple

from flagscale_perf.analysis.relation import MAX_DRIFT_PPM, Relation, relation_of
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.spine.session import labels_of

_UNITS = ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (1000, "us"), (1, "ns"))

Move = Callable[[int], int]  # of a mark onto another clock


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


class Clocks:
    """Brings marks of several machines onto the clock of the first one: by evidence where messages went both
    ways, directly or over other machines, else by their times of day.
    """

    def __init__(self, headers: Sequence[RunHeader], evidence: Callable[[], Iterable[Bound]] = tuple) -> None:
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

    def mover(self, clock: str) -> Move | None:
        """Brings marks of this clock onto the first one; None where these are the same, and for a machine
        without a run file and evidence.
        """
        way = self._way(clock)
        if way == []:
            return None
        constant_ns = (
            self._by_wall_ns(self._clock_of_host.get(clock, clock))
            if way is None
            else _sum_of(each.constant_ns for each in way)
        )
        if constant_ns is not None:
            return constant_ns.__add__
        return None if way is None else partial(_moved, way)

    def mark_of(self, clock: str, first_ns: int) -> int:
        """About the mark of this clock at a time of the first one, by evidence; else that time."""
        way = self._way(clock)
        if not way:
            return first_ns
        mark_ns = way[0].first_ns
        for _ in range(2):  # the offset at a mark that is near enough, then at the mark itself
            mark_ns += first_ns - _moved(way, mark_ns)
        return mark_ns

    def uncertainty_ns(self, clock: str, at_ns: int) -> int | None:
        """By how much a mark of this clock may be off there; None where it is not known."""
        way = self._way(clock)
        if way is None:
            return None
        total_ns = 0
        for relation in way:
            total_ns += relation.uncertainty_ns(at_ns)
            at_ns += relation.offset_ns(at_ns)
        return total_ns

    def lines(self, with_others: bool = False) -> list[str]:
        """One line about each other clock, where there are run files of several machines; `with_others`: also
        where only one machine has any, and its records are of others, too.
        """
        if len(self._headers) == 1 and not with_others:
            return []  # without another reading
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
    def _ways(self) -> dict[str, list[Relation]]:
        """From each clock to the first: by the fewest steps, then by the most messages."""
        ways: dict[str, list[Relation]] = {clock_of(self._first): []}
        reached = [*ways]
        for clock in reached:
            near = self._pairs_of.get(clock, {})
            for other in sorted(near, key=lambda each: (-near[each], each)):
                if other not in ways and (relation := self._relation(other, clock)) is not None:
                    ways[other] = [relation, *ways[clock]]
                    reached.append(other)
        return ways

    def _way(self, clock: str) -> list[Relation] | None:
        """From this clock, or that of this host, to the first; None where there is none."""
        clock = self._clock_of_host.get(clock, clock)
        return [] if clock == clock_of(self._first) else self._ways.get(clock)

    def _relation(self, clock: str, to: str) -> Relation | None:
        lows = [(ended, begun - ended) for begun, ended in self._pairs.get((to, clock), ())]
        highs = [(begun, ended - begun) for begun, ended in self._pairs.get((clock, to), ())]
        return relation_of(lows, highs)

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
        at = labels_of(first).at(at_ns + offset_ns - first.start_mono_ns + first.start_wall_ns)
        low, high = (sum(end) for end in zip(*(relation.drift_ppm for relation in way), strict=True))
        drift = f"drift {-(low + high) / 2:+.1f} +- {(high - low) / 2:.1f} ppm"
        if high - low >= 2 * MAX_DRIFT_PPM:
            drift = "drift not known"
        over = ", over other machines" if len(way) > 1 else ""
        return (
            f"{begin}{_seconds(-offset_ns, uncertainty_ns)} at {at:%H:%M:%S}, {drift}"
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
    unit, name = next(((unit, name) for unit, name in _UNITS if uncertainty_ns >= unit), (1, "ns"))
    shown = (
        -(-uncertainty_ns // unit) if uncertainty_ns >= 10 * unit else -(-uncertainty_ns * 10 // unit) / 10
    )
    decimals = {"s": 1, "ms": 4, "us": 6, "ns": 9}[name]
    return f"{offset_ns / NS_PER_S:+,.{decimals}f} s +- {shown:g} {name}"
