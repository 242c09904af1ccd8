"""A series of any length as a chart can draw it: no value that stands out is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import pairwise
from operator import itemgetter
from typing import Any, Generic, TypeVar

STRETCHES = 1000  # about as many as a chart has pixels

Row = TypeVar("Row")


_Kept = tuple[int, float | None, Row]  # place, value, row
_Pair = tuple[_Kept[Row], _Kept[Row]]  # with the lowest and with the highest value


class Extremes(Generic[Row]):
    """Rows of a stream: every one while there are few, then of each of so many equally long stretches the
    one with the lowest and the one with the highest value, in bounded memory.
    """

    def __init__(self, stretches: int = STRETCHES) -> None:
        """Keeps at most two rows of each of so many stretches."""
        self._most = max(2, stretches // 2 * 2)
        self._kept: list[_Pair[Row]] = []
        self._length, self._seen = 1, 0
        self._last: list[tuple[int, Row]] = []

    def add(self, values: Sequence[float | None], row: Callable[[int], Row]) -> None:
        """The next rows, by their values; None for one that has none, which is kept where no other has one.

        Args:
            values: one for each row.
            row: makes the n-th of them; only called for what may be kept.
        """
        count = len(values)
        while self._seen + count > self._most * self._length:
            self._halve()
        begun = min(count, -self._seen % self._length)  # so many still belong to the last stretch
        cuts = [*range(begun, count, self._length), count]
        for begin, end in pairwise([0, *cuts] if begun else cuts):
            kept = [(self._seen + n, values[n], row(n)) for n in _extremes(values, begin, end)]
            pair = kept[0], kept[-1]
            if begin < begun:
                self._kept[-1] = _joined(self._kept[-1], pair)
            else:
                self._kept.append(pair)
        self._seen += count
        if values:
            self._last = [(self._seen - 1, row(count - 1))]

    def rows(self) -> list[Row]:
        """Those that are kept, in their order, and always the last one."""
        kept = {place: row for pair in self._kept for place, _, row in pair} | dict(self._last)
        return [row for _, row in sorted(kept.items(), key=itemgetter(0))]

    def _halve(self) -> None:
        pairs = (self._kept[at : at + 2] for at in range(0, len(self._kept), 2))
        self._kept = [reduce(_joined, pair) for pair in pairs]
        self._length *= 2


def thinned(
    rows: Iterable[Row], value: Callable[[Row], float | None], stretches: int = STRETCHES
) -> list[Row]:
    """The rows of a series to draw, see `Extremes`."""
    kept: Extremes[Row] = Extremes(stretches)
    known = list(rows)
    kept.add([value(row) for row in known], known.__getitem__)
    return kept.rows()


def _extremes(values: Sequence[float | None], begin: int, end: int) -> tuple[int, ...]:
    """Places of the lowest and of the highest value; of the first where none is known."""
    part: Sequence[Any] = values[begin:end]
    try:
        low, high = min(part), max(part)
    except TypeError:  # to look for a None in all takes longer
        known = [value for value in part if value is not None]
        low, high = (min(known), max(known)) if known else (None, None)
    return tuple({begin + part.index(low): None, begin + part.index(high): None})


def _joined(one: _Pair[Row], other: _Pair[Row]) -> _Pair[Row]:
    (low, high), (lower, higher) = one, other
    if lower[1] is None or higher[1] is None:
        return one
    if low[1] is None or high[1] is None:
        return other
    return (lower if lower[1] < low[1] else low, higher if higher[1] > high[1] else high)
