"""Calls in columns: batches of some hundred calls, a list of values for each field of `CallRecord`; of a long
file thousands, and arrays where all are known.

Summing a list is several times as fast as summing call by call, an array by numpy again, and millions of
calls are read.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import add
from typing import Any, TypeAlias

from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.spine.records import tuple_of

BATCH = 512  # so few that they stay in the processor's caches
_MOST = 1 << 63  # no sum of an array is as large

# Times of a log are whole microseconds and its bytes whole 10 bytes, so they may be fractions here.
Columns: TypeAlias = dict[str, Sequence[Any]]


def named(columns: Sequence[Sequence[Any]]) -> Columns:
    """A batch of columns in the order of the fields."""
    return dict(zip(CallRecord._fields, columns, strict=True))


def call_at(columns: Columns, place: int) -> CallRecord:
    """One call of a batch."""
    cells = [columns[name][place] for name in CallRecord._fields]
    return tuple_of(CallRecord, [round(cell) if type(cell) is float else cell for cell in cells])


def calls_in(columns: Columns, begin: int, end: int) -> list[CallRecord]:
    """Some calls of a batch, fractions rounded."""
    cells = (_whole(columns[name][begin:end]) for name in CallRecord._fields)
    return [tuple_of(CallRecord, row) for row in zip(*cells, strict=True)]


def _whole(values: Sequence[Any]) -> Sequence[Any]:
    if not any(type(value) is float for value in values):
        return values
    return [round(value) if type(value) is float else value for value in values]  # None stays: not known


def total(values: Sequence[Any]) -> int:
    """The sum of a column; what is not known counts nothing."""
    if isinstance(values, array) and max(largest(values), -least(values)) * len(values) < _MOST:
        return int(_numbers(values).sum())
    try:
        return int(round(sum(values)))
    except TypeError:
        return int(round(sum(value for value in values if value is not None)))


def known(values: Sequence[Any]) -> int:
    """How many of a column are known."""
    return len(values) - (0 if isinstance(values, array) else values.count(None))


def largest(values: Sequence[Any]) -> Any:
    """The largest of a column whose values are all known."""
    return int(_numbers(values).max()) if isinstance(values, array) else max(values)


def least(values: Sequence[Any]) -> Any:
    """The least one."""
    return int(_numbers(values).min()) if isinstance(values, array) else min(values)


def added(one: Sequence[Any], other: Sequence[Any]) -> Sequence[Any]:
    """Two such columns added, value by value."""
    if isinstance(one, array) and isinstance(other, array):
        made = array("q", (_numbers(one) + _numbers(other)).tobytes())
        if least(one) >= 0 <= least(other) and least(made) >= 0:  # else it may have passed 64 bits
            return made
    return [*map(add, one, other)]


def _numbers(values: array[int]) -> Any:
    import numpy  # without which there are no arrays

    return numpy.frombuffer(values, "i8")
