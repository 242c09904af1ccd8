"""Items side by side: where those of a track overlap, it becomes several lanes, so that what lies in one lies
beside or inside of everything else there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from flagscale_perf.analysis.timeline import Counter, Drawn, Item, Track

WAITING = 4096  # items of a track that wait to be sorted; half of them go on
MOST_WAITING = 200_000  # of all tracks
_LANES = 100  # places of a track's lanes among the rows


class Lane:
    """One of the rows that a track is drawn as.

    Attributes:
        number: from 1, of all lanes.
        place: among those of its track, from 0.
    """

    __slots__ = ("floor_ns", "number", "opened", "place", "track")

    def __init__(self, track: Track, number: int, place: int) -> None:
        self.track, self.number, self.place = track, number, place
        self.floor_ns = -(1 << 63)  # nothing can begin before it any more
        self.opened: list[Item] = []

    @property
    def order(self) -> int:
        """Among the rows of its process, for the viewers that sort them."""
        return self.track.order * _LANES + min(self.place, _LANES - 1)

    def fits(self, item: Item) -> bool:
        """Whether it lies beside or inside of what is here, once the others have been closed."""
        return self.floor_ns <= item.begin_ns and (not self.opened or item.end_ns <= self.opened[-1].end_ns)


class Laid(NamedTuple):
    """The beginning of an item in a lane, or its end: in the order in which the lane has them. What takes no
    time has no end.
    """

    lane: Lane
    item: Item
    is_end: bool = False


class _Waiting(NamedTuple):
    """An item and where it has to be: a part in the lane of its whole, which comes before it."""

    begin_ns: int
    minus_end_ns: int
    turn: int
    item: Item
    found: list[Lane]


def laid(items: Iterable[Drawn]) -> Iterator[Laid | Counter]:
    """Everything in lanes. Items come a bit later than they are given, by track in the order of time; what
    comes much too late gets another lane.
    """
    return _Lanes().of(items)


class _Lanes:
    def __init__(self) -> None:
        self._lanes: dict[Track, list[Lane]] = {}
        self._waiting: dict[Track, list[_Waiting]] = defaultdict(list)
        self._turn = self._held = self._count = 0

    def of(self, items: Iterable[Drawn]) -> Iterator[Laid | Counter]:
        for item in items:
            if isinstance(item, Counter):
                yield item
                continue
            waiting = self._waiting[item.track]
            self._hold(waiting, item)
            if len(waiting) >= WAITING:
                yield from self._sorted(item.track, len(waiting) // 2)
            if self._held > MOST_WAITING:
                yield from self._all()
        yield from self._all()
        for lanes in self._lanes.values():
            for lane in lanes:
                while lane.opened:
                    yield Laid(lane, lane.opened.pop(), True)

    def _hold(self, waiting: list[_Waiting], item: Item) -> None:
        begin_ns, end_ns = item.begin_ns, max(item.begin_ns, item.end_ns)
        if end_ns != item.end_ns:
            item = item._replace(end_ns=end_ns)
        found: list[Lane] = []
        self._turn += 1
        waiting.append(_Waiting(begin_ns, -end_ns, self._turn, item, found))
        for name, from_ns, until_ns in item.parts:
            self._turn += 1
            part = Item(name, item.track, from_ns, until_ns)
            waiting.append(_Waiting(from_ns, -until_ns, self._turn, part, found))
        self._held += 1 + len(item.parts)

    def _all(self) -> Iterator[Laid]:
        for track in [*self._waiting]:
            yield from self._sorted(track, len(self._waiting[track]))

    def _sorted(self, track: Track, count: int) -> Iterator[Laid]:
        waiting = self._waiting[track]
        waiting.sort()
        self._waiting[track] = waiting[count:]
        self._held -= count
        lanes = self._lanes.setdefault(track, [])
        for _, _, _, item, found in waiting[:count]:
            lane = None
            for one in [*found, *lanes]:
                if one.floor_ns <= item.begin_ns:
                    yield from self._closed(one, item.begin_ns)
                    if one.fits(item):
                        lane = one
                        break
            if lane is None:
                self._count += 1
                lane = Lane(track, self._count, len(lanes))
                lanes.append(lane)
            if not found:
                found.append(lane)
            lane.floor_ns = item.begin_ns
            yield Laid(lane, item)
            if item.end_ns > item.begin_ns:
                lane.opened.append(item)

    @staticmethod
    def _closed(lane: Lane, until_ns: int) -> Iterator[Laid]:
        while lane.opened and lane.opened[-1].end_ns <= until_ns:
            item = lane.opened.pop()
            lane.floor_ns = max(lane.floor_ns, item.end_ns)
            yield Laid(lane, item, True)
