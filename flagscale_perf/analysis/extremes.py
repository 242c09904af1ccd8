"""A series of any length as a chart can draw it: no value that stands out is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

STRETCHES = 1000  # about as many as a chart has pixels

Row = TypeVar("Row")


class _Kept(NamedTuple, Generic[Row]):
    place: int
    value: float | None
    row: Row


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

    def add(self, value: float | None, row: Row) -> None:
        """The next row, and its value; None where it has none, which is kept where no other row has one."""
        one = _Kept(self._seen, value, row)
        pair = one, one
        if self._seen % self._length:
            self._kept[-1] = _joined(self._kept[-1], pair)
        else:
            if len(self._kept) == self._most:
                self._halve()
            self._kept.append(pair)
        self._last = [(self._seen, row)]
        self._seen += 1

    def rows(self) -> list[Row]:
        """Those that are kept, in their order, and always the last one."""
        kept = {one.place: one.row for pair in self._kept for one in pair} | dict(self._last)
        return [row for _, row in sorted(kept.items(), key=itemgetter(0))]

    def _halve(self) -> None:
        pairs = zip(self._kept[::2], self._kept[1::2], strict=True)
        self._kept = [_joined(first, second) for first, second in pairs]
        self._length *= 2


def thinned(
    rows: Iterable[Row], value: Callable[[Row], float | None], stretches: int = STRETCHES
) -> list[Row]:
    """The rows of a series to draw, see `Extremes`."""
    kept: Extremes[Row] = Extremes(stretches)
    for row in rows:
        kept.add(value(row), row)
    return kept.rows()


def _joined(one: _Pair[Row], other: _Pair[Row]) -> _Pair[Row]:
    known = [kept for kept in (*one, *other) if kept.value is not None]
    if not known:
        return one
    return min(known, key=lambda kept: kept.value or 0.0), max(known, key=lambda kept: kept.value or 0.0)
