"""A captured step of a pipeline once more, without what some ranks take longer."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Container, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from flagscale_perf.training.ledger.book import SAME_MOMENT_NS
from flagscale_perf.training.ledger.cuts import CUTS
from flagscale_perf.training.ledger.lanes import PIPE, Lanes, Span
from flagscale_perf.training.phases import NUMBER_OF, PHASES

_Place = tuple[int, int]  # of a span: its rank, and its number in that rank's lane


class _Direction(NamedTuple):
    """One of the two ways through a pipeline.

    Attributes:
        phase, compute: of a stage's work on a micro-batch, and the number of its timer.
        receives: timers of the waits for what the neighbour has made of it.
        send: the timer of handing it on, and nothing else.
    """

    phase: int
    compute: int
    receives: frozenset[int]
    send: int

    @classmethod
    def named(cls, name: str) -> _Direction:
        """Forward or backward."""
        receives = frozenset(NUMBER_OF[each] for each in NUMBER_OF if each.endswith(f"{name}-recv"))
        return cls(PHASES.index(name), NUMBER_OF[f"{name}-compute"], receives, NUMBER_OF[f"{name}-send"])


_FORWARD, _BACKWARD = map(_Direction.named, ("forward", "backward"))


class _Node(NamedTuple):
    """A span: those that end before it can, and how much later than the last of them it ends."""

    after: frozenset[_Place]
    lag_ns: int


class Replay:
    """The second step of all lanes."""

    def __init__(self, lanes: Lanes) -> None:
        """Raises ValueError where its marks contradict one another."""
        self._lanes = lanes
        self._first = {
            rank: next(at for at, span in enumerate(lane.every) if span.start_ns >= lane.begin_ns)
            for rank, lane in lanes.of.items()
        }
        self._waits = self._collectives()
        for place, other in self._messages():
            self._waits[place].add(other)
        nodes = {place: self._node(place, span) for place, span in self._spans()}
        try:
            order = list(
                TopologicalSorter({place: node.after for place, node in nodes.items()}).static_order()
            )
        except CycleError as error:
            raise ValueError("ranks that wait for one another") from error
        self._nodes = {place: nodes[place] for place in order if place in nodes}
        self._end_ns = max(lane.end_ns for lane in lanes.of.values())

    def gain_ns(self, ranks: Collection[int], phase: int) -> int:
        """What the step gains if these ranks take as long in that phase as the others of their stages."""
        ends_ns: dict[_Place, int] = {}
        for place, node in self._nodes.items():
            rank, span = place[0], self._span(place)
            is_changed = rank in ranks and span.phase == phase and span.dur_ns > 0
            lag_ns = self._lanes.usual_ns(rank, span) if is_changed else node.lag_ns
            before = (ends_ns[each] if each in ends_ns else self._span(each).end_ns for each in node.after)
            ends_ns[place] = max(before) + lag_ns
        return self._end_ns - max(ends_ns[rank, len(lane.every) - 1] for rank, lane in self._lanes.of.items())

    def _span(self, place: _Place) -> Span:
        return self._lanes.of[place[0]].every[place[1]]

    def _spans(self) -> Iterator[tuple[_Place, Span]]:
        for rank, lane in self._lanes.of.items():
            for at in range(self._first[rank], len(lane.every)):
                yield (rank, at), lane.every[at]

    def _node(self, place: _Place, span: Span) -> _Node:
        after = frozenset({(place[0], place[1] - 1), *self._waits[place]})
        last_ns = max(self._span(each).end_ns for each in after)
        if last_ns > span.end_ns + SAME_MOMENT_NS:
            raise ValueError("a wait that ends before what it is for")
        return _Node(after, span.end_ns - last_ns)

    def _collectives(self) -> defaultdict[_Place, set[_Place]]:
        """What all members have done before it."""
        waits: defaultdict[_Place, set[_Place]] = defaultdict(set)
        at = {(place[0], span): place[1] for place, span in self._spans()}
        for place, span in self._spans():
            if span.phase in CUTS:
                members = self._lanes.members(place[0], span)
                waits[place] = {(rank, at[rank, each] - 1) for rank, each in members}
        return waits

    def _messages(self) -> Iterator[tuple[_Place, _Place]]:
        """A stage's nth receipt is behind its neighbour's nth piece of work. Where the sender waits until the
        receiver is there, its wait is behind what that has done before.
        """
        for direction in (_FORWARD, _BACKWARD):
            works = self._places((direction.phase,), {direction.compute})
            receipts = self._places(PIPE, direction.receives)
            for rank, received in receipts.items():
                for number, place in enumerate(received):
                    for other in self._lanes.neighbours(rank, self._span(place).timer):
                        yield from ((place, each) for each in works[other][number : number + 1])
            for rank, sent in self._places(PIPE, {direction.send}).items():
                for place in sent:
                    number = bisect_left(works[rank], place) - 1
                    for other in self._lanes.neighbours(rank, direction.send):
                        for _, at in receipts[other][number : number + 1]:
                            if self._span((other, at)).start_ns <= self._span(place).end_ns:
                                yield place, (other, at - 1)

    def _places(self, phases: Container[int], timers: Container[int]) -> dict[int, list[_Place]]:
        """Of each rank, the spans of those phases that those timers end."""
        found: dict[int, list[_Place]] = {rank: [] for rank in self._lanes.of}
        for place, span in self._spans():
            if span.phase in phases and span.timer in timers:
                found[place[0]].append(place)
        return found
