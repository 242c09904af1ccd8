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

_Place = tuple[int, int]  # of a span: its rank, and its place in that rank's lane


class ContradictionError(Exception):
    """Marks that no step can have."""


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
        receives = frozenset(NUMBER_OF[each] for each in NUMBER_OF if each.endswith(f"{name}-recv"))
        return cls(PHASES.index(name), NUMBER_OF[f"{name}-compute"], receives, NUMBER_OF[f"{name}-send"])


_DIRECTIONS = tuple(map(_Direction.named, ("forward", "backward")))


class _Node(NamedTuple):
    """A span: those that end before it can, and how much later than the last of them it ends."""

    after: frozenset[_Place]
    lag_ns: int


class Replay:
    """One step of all lanes. Raises ContradictionError where its marks contradict one another."""

    def __init__(self, lanes: Lanes) -> None:
        """Every span is put behind what it waits for."""
        self._lanes = lanes
        waits = self._collectives()
        for place, other in self._messages():
            waits[place].add(other)
        nodes = {place: self._node(place, span, waits[place]) for place, span in self._spans()}
        try:
            order = list(
                TopologicalSorter({place: node.after for place, node in nodes.items()}).static_order()
            )
        except CycleError as error:
            raise ContradictionError("ranks that wait for one another") from error
        self._nodes = {place: nodes[place] for place in order}
        self._end_ns = max(lane.end_ns for lane in lanes.of.values())

    def gain_ns(self, ranks: Collection[int], phase: int) -> int:
        """What the step gains if these ranks take as long in that phase as the others of their stages."""
        ends_ns: dict[_Place, int] = {}
        for place, node in self._nodes.items():
            rank, number = place
            is_changed = rank in ranks and self._span(place).phase == phase
            lag_ns = self._lanes.usual_ns(rank, number) if is_changed else node.lag_ns
            start_ns = max((ends_ns[each] for each in node.after), default=self._lanes.of[rank].begin_ns)
            ends_ns[place] = start_ns + lag_ns
        return self._end_ns - max(ends_ns.values())

    def _span(self, place: _Place) -> Span:
        return self._lanes.of[place[0]].spans[place[1]]

    def _spans(self) -> Iterator[tuple[_Place, Span]]:
        for rank, lane in self._lanes.of.items():
            yield from (((rank, number), span) for number, span in enumerate(lane.spans))

    def _node(self, place: _Place, span: Span, waits: Collection[_Place]) -> _Node:
        rank, number = place
        after = frozenset([*waits, *([(rank, number - 1)] if number else [])])
        last_ns = max((self._span(each).end_ns for each in after), default=span.start_ns)
        if last_ns > span.end_ns + SAME_MOMENT_NS:
            raise ContradictionError("a wait that ends before what it is for")
        return _Node(after, span.end_ns - last_ns)

    def _collectives(self) -> defaultdict[_Place, set[_Place]]:
        waits: defaultdict[_Place, set[_Place]] = defaultdict(set)
        for place, span in self._spans():
            if span.phase in CUTS and place not in waits:
                members = self._lanes.members(*place)
                before = {(rank, number - 1) for rank, number in members}
                waits |= {member: set(before) for member in members}
        return waits

    def _messages(self) -> Iterator[tuple[_Place, _Place]]:
        """A stage's nth receipt is behind its neighbour's nth piece of work. Where the sender waits until the
        receiver is there, its wait is behind what that has done before.
        """
        for direction in _DIRECTIONS:
            works = self._places((direction.phase,), {direction.compute})
            receipts = self._places(PIPE, direction.receives)
            for rank, received in receipts.items():
                for turn, place in enumerate(received):
                    for other in self._lanes.neighbours(rank, self._span(place).timer):
                        yield from ((place, each) for each in works[other][turn : turn + 1])
            for rank, sent in self._places(PIPE, {direction.send}).items():
                for place in sent:
                    turn = bisect_left(works[rank], place) - 1
                    for other in self._lanes.neighbours(rank, direction.send):
                        for _, number in receipts[other][turn : turn + 1]:
                            if self._span((other, number)).start_ns <= self._span(place).end_ns:
                                yield place, (other, number - 1)

    def _places(self, phases: Container[int], timers: Container[int]) -> dict[int, list[_Place]]:
        found: dict[int, list[_Place]] = {rank: [] for rank in self._lanes.of}
        for place, span in self._spans():
            if span.phase in phases and span.timer in timers:
                found[place[0]].append(place)
        return found
