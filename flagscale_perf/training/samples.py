"""Bounded samples of streams that may be of any length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from flagscale_perf.spine.averages import percentile
from flagscale_perf.spine.chance import Choice
from flagscale_perf.training.columns import highest_of, lowest_of

RESERVOIR_SIZE = 4096
MAX_ROWS = 2000

Row = TypeVar("Row")


class Reservoir(Choice):
    """A bounded sample of a stream of numbers: all of them up to its size, then a uniform choice."""

    def __init__(self, size: int = RESERVOIR_SIZE) -> None:
        super().__init__(size)
        self._kept: list[int] = []
        self.minimum: int | None = None
        self.maximum: int | None = None

    def add(self, value: int) -> None:
        """One more number of the stream."""
        self._seen += 1
        if self.minimum is None or self.maximum is None:
            self.minimum = self.maximum = value
        elif value > self.maximum:
            self.maximum = value
        elif value < self.minimum:
            self.minimum = value
        if self._seen <= self._size:
            self._kept.append(value)
        elif self._seen > self._next:
            self._kept[int(self._random.random() * self._size)] = value
            self._skip(self._next)

    def add_many(self, values: Sequence[int]) -> None:
        """The next numbers of the stream."""
        low, high = lowest_of(values), highest_of(values)
        self.minimum = low if self.minimum is None else min(self.minimum, low)
        self.maximum = high if self.maximum is None else max(self.maximum, high)
        for number, place in self.places(len(values)):
            self.keep(values[number], place)

    def keep(self, value: int, place: int) -> None:
        """Keeps a number at one of these places."""
        self._kept[place : place + 1] = [value]

    def kept(self) -> list[int]:
        """The values that were kept."""
        return list(self._kept)

    def quantile(self, share: float) -> int | None:
        """The smallest number kept that at least `share` of them do not exceed; None before the first."""
        if not self._kept:
            return None
        return percentile(self._kept, share)


class ThinnedRows(Generic[Row]):
    """At most `MAX_ROWS` rows of a stream: every one, then one of each two, four ..., and always the last."""

    def __init__(self, limit: int = MAX_ROWS, size: Callable[[Row], int] = lambda _: 0) -> None:
        """`size`: of rows of which one is kept, it is the first of the largest."""
        self._limit, self._size = limit, size
        self._rows: list[Row] = []
        self._stride = 1
        self._seen = self._largest = 0
        self._last: Row | None = None

    def add(self, row: Row) -> None:
        """Adds a row of values."""
        self.add_many([self._size(row)], lambda _: row)

    def add_many(self, sizes: Sequence[int], row: Callable[[int], Row]) -> None:
        """The next rows, by their sizes. `row` makes the n-th of them; only called for what may be kept."""
        begin, kept = 0, -1
        while begin < len(sizes):
            if self._seen % self._stride == 0 and len(self._rows) >= self._limit - 1:
                self._halve()
            behind = self._seen % self._stride
            end = min(len(sizes), begin + self._stride - behind)
            size = max(sizes[begin:end])
            if not behind or size > self._largest:
                kept = sizes.index(size, begin, end)
                self._rows[len(self._rows) - bool(behind) :] = [row(kept)]
                self._largest = size
                self._last = self._rows[-1]
            self._seen, begin = self._seen + end - begin, end
        if kept < len(sizes) - 1:
            self._last = row(len(sizes) - 1)

    def _halve(self) -> None:
        pairs = (self._rows[at : at + 2] for at in range(0, len(self._rows), 2))
        self._rows = [max(pair, key=self._size) for pair in pairs]
        self._stride *= 2
        self._largest = self._size(self._rows[-1])

    def rows(self) -> list[Row]:
        """The rows that were kept, oldest first, and always the stream's last one."""
        if self._last is None or self._rows[-1] is self._last:
            return self._rows
        return [*self._rows, self._last]
