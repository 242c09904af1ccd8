"""Intervals in columns, and what a column adds up to. Integers that are all known may lie in an array; many
of them are added up by numpy.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import compress
from operator import attrgetter, le, not_
from typing import Any, cast

from flagscale_perf.spine.mappings import Mappings
from flagscale_perf.training.records import IntervalRecord

Columns = Mapping[str, Sequence[Any]]
_FIELDS = [field.name for field in fields(IntervalRecord)]


_MANY = 128  # numbers: fewer are added up sooner one by one


def numbers_of(column: Sequence[Any]) -> Any:
    """An array of many integers as numpy has it; None of any other column."""
    if type(column) is not array or len(column) < _MANY or column.typecode != "q":
        return None
    import numpy

    return numpy.frombuffer(column, numpy.int64)


def total(column: Sequence[int | None]) -> int | None:
    """The sum of a column; None where one of its values is not known."""
    numbers = numbers_of(column)
    if numbers is not None and max(int(numbers.max()), -int(numbers.min())) < (1 << 63) // len(numbers):
        return int(numbers.sum())
    try:
        return sum(cast("Sequence[int]", column))
    except TypeError:  # to look for a None in all takes longer
        return None


def known_total(column: Sequence[int | None]) -> int | None:
    """The sum of those that are known; None where none is."""
    whole = total(column)
    if whole is None and column.count(None) < len(column):
        return sum(value for value in column if value is not None)
    return whole


def highest_of(column: Sequence[Any]) -> Any:
    """The largest of those that are known; None where none is."""
    numbers = numbers_of(column)
    if numbers is not None:
        return int(numbers.max())
    try:
        return max(column, default=None)
    except TypeError:
        return max((value for value in column if value is not None), default=None)


def lowest_of(column: Sequence[int]) -> int:
    """The smallest of a column, in which all are known and there is one."""
    numbers = numbers_of(column)
    return min(column) if numbers is None else int(numbers.min())


def sums_of(columns: Sequence[Sequence[int]]) -> Sequence[int]:
    """Of each place the sum of all columns there."""
    numbers = [*map(numbers_of, columns)]
    if any(one is None for one in numbers) or sum(int(abs(one).max()) for one in numbers) >= 1 << 63:
        return list(map(sum, zip(*columns, strict=True)))
    return array("q", sum(numbers).tobytes())


def are_parts(parts: Sequence[int | None], wholes: Sequence[int]) -> bool:
    """Whether each is known, and between 0 and the other column's value."""
    some, all_ = numbers_of(parts), numbers_of(wholes)
    if some is not None and all_ is not None:
        return bool((some >= 0).all() and (some <= all_).all())
    try:
        return min(parts) >= 0 and all(map(le, parts, wholes))  # type: ignore[type-var, operator, arg-type]
    except TypeError:
        return False


class Intervals:
    """Intervals that follow one another: a column for each field, by its name."""

    def __init__(self, columns: Columns, places: Sequence[int] | None = None) -> None:
        """Of all rows of the columns, or of those at these places."""
        self._columns = columns
        self._places: Sequence[int] = range(len(columns["steps"])) if places is None else places
        self._chosen: dict[str, Sequence[Any]] = {}
        self._is_whole = len(self._places) == len(columns["steps"])

    @classmethod
    def of(cls, intervals: Iterable[IntervalRecord]) -> Intervals:
        """These intervals, at least one, in columns."""
        return cls.made(list(zip(*map(attrgetter(*_FIELDS), intervals), strict=True)))

    @classmethod
    def made(cls, columns: Sequence[Sequence[Any]]) -> Intervals:
        """Of columns in the order of the fields; none of no columns."""
        return cls(dict(zip(_FIELDS, columns or [()] * len(_FIELDS), strict=True)))

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, name: str) -> Sequence[Any]:
        """The column of that name."""
        column = self._columns[name]
        if self._is_whole:
            return column
        if name not in self._chosen:
            at = self._places
            self._chosen[name] = (
                column[at.start : at.stop] if isinstance(at, range) else [column[place] for place in at]
            )
        return self._chosen[name]

    def one(self, number: int) -> IntervalRecord:
        """The interval at this place, as a record."""
        place, made = self._places[number], object.__new__(IntervalRecord)
        # Like the class itself, which sets each field by a call of its own and takes three times as long.
        vars(made).update({name: column[place] for name, column in self._columns.items()})
        return made

    def seen(self, number: int) -> Any:
        """The same to look at a few of its fields: made in no time, but it keeps all these intervals."""
        return _Seen(self._columns, self._places[number])

    @property
    def settled(self) -> Intervals:
        """Those that are more than warm-up."""
        are_warmup = self["warmup_only"]
        return self.those(map(not_, are_warmup)) if any(are_warmup) else self

    @property
    def with_phases(self) -> Intervals:
        """Those whose phases are known."""
        column = self["phases_ns"]
        is_whole = isinstance(column, Mappings)
        return self if is_whole else self.those(one is not None for one in column)

    def part(self, begin: int, end: int) -> Intervals:
        """Those from one place up to another."""
        return self if (begin, end) == (0, len(self)) else Intervals(self._columns, self._places[begin:end])

    def those(self, chosen: Iterable[Any]) -> Intervals:
        """Those for which this is true."""
        places = [*compress(self._places, chosen)]
        return self if len(places) == len(self) else Intervals(self._columns, places)


class _Seen:
    __slots__ = ("_columns", "_place")

    def __init__(self, columns: Columns, place: int) -> None:
        self._columns, self._place = columns, place

    def __getattr__(self, name: str) -> Any:
        return self._columns[name][self._place]
