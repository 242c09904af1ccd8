"""The puts of each sample, from the one that created it on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from flagscale_perf.trace.analysis.moves import Clear, Move, Moves


def in_turn(moves: Moves) -> Iterator[int | Clear]:
    """Puts and gets by their index, and clears, in time order."""
    found = moves.moves
    clears = deque(sorted(moves.clears, key=lambda clear: clear.at_ns))
    for place in sorted(range(len(found)), key=lambda at: (found[at].ready_ns, found[at].kind)):
        while clears and clears[0].at_ns <= found[place].ready_ns:
            yield clears.popleft()
        yield place
    yield from clears


def cleared_exactly(moves: Moves) -> set[str]:
    """Partitions of which everything that was cleared is known, so that nothing else ends a life there."""
    return {clear.partition for clear in moves.clears} - {
        clear.partition for clear in moves.clears if not clear.is_known
    }


class Nodes:
    """The history of samples within their current life; numbered from 1. Samples with the same history share
    their nodes.

    Attributes:
        put: the last put, a place in the moves.
        before: the node before it; 0 for none.
        first: the first put of the life.
        is_over: the last consumer has had it.
    """

    def __init__(self, moves: Sequence[Move], functions: Sequence[str]) -> None:
        """`functions`: in which each move was made."""
        self._moves, self._functions = moves, functions
        self.put, self.before, self.first, self.is_over = [-1], [0], [-1], [True]
        self._over: dict[int, int] = {}

    def begins(self, node: int, put: int) -> bool:
        """Whether a put of samples with this node begins a new life, as far as puts and gets tell: it writes
        what the life began with, and is made in the same function or comes after the last consumer.
        """
        first = self.first[node]
        began, writes = self._moves[first].fields, self._moves[put].fields
        if began is not None and writes is not None and began.isdisjoint(writes):
            return False
        return self.is_over[node] or self._functions[first] == self._functions[put]

    def after_put(self, node: int, put: int) -> int:
        """The node after a put of samples with this node; 0 where a life begins."""
        self.put.append(put)
        self.before.append(node)
        self.first.append(self.first[node] if node else put)
        self.is_over.append(node > 0 and self.is_over[node])
        return len(self.put) - 1

    def after_last_get(self, node: int) -> int:
        """The node after the last consumer got samples with this node."""
        if self.is_over[node]:
            return node
        over = self._over.get(node)
        if over is None:
            self.put.append(self.put[node])
            self.before.append(self.before[node])
            self.first.append(self.first[node])
            self.is_over.append(True)
            over = self._over[node] = len(self.put) - 1
        return over

    def writers(self, node: int, fields: frozenset[str] | None) -> list[int]:
        """The puts of this life that wrote what a get of these fields has, the last one first: for each field
        the last that wrote it. Where the fields of either are not known, any put may be one.
        """
        found, left = [], fields
        while node and (left is None or left):
            put = self.put[node]
            written = self._moves[put].fields
            if left is None or written is None:
                found.append(put)
            elif not left.isdisjoint(written):
                found.append(put)
                left -= written
            node = self.before[node]
        return found
