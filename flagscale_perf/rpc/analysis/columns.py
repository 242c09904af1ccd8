"""Calls in columns: batches of a few thousand calls, a list of values for each field of `CallRecord`.

Summing a list is several times as fast as summing call by call, and millions of calls are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.spine.records import tuple_of

BATCH = 512  # so few that they stay in the processor's caches

# Times of a log are whole microseconds and its bytes whole 10 bytes, so they may be fractions here.
Columns: TypeAlias = dict[str, Sequence[Any]]


class Gathering:
    """Merges columns, in the order of the fields, into batches of at least `BATCH` calls."""

    def __init__(self) -> None:
        self._held = _none()

    def batches(self, parts: Iterable[Sequence[Sequence[Any]]]) -> Iterator[Columns]:
        """The calls of all of these."""
        for part in parts:
            if not self._held[0] and len(part[0]) >= BATCH:
                yield _named(part)
                continue
            for column, more in zip(self._held, part, strict=True):
                column.extend(more)
            if len(self._held[0]) >= BATCH:
                held, self._held = self._held, _none()
                yield _named(held)
        if self._held[0]:
            yield _named(self._held)


def _none() -> list[list[Any]]:
    return [[] for _ in CallRecord._fields]


def _named(columns: Sequence[Sequence[Any]]) -> Columns:
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
