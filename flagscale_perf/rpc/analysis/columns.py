"""Calls in columns: batches of some hundred calls, a list of values for each field of `CallRecord`.

Summing a list is several times as fast as summing call by call, and millions of calls are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.spine.records import tuple_of

BATCH = 512  # so few that they stay in the processor's caches

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
    return [round(value) for value in values] if values and isinstance(values[0], float) else values
