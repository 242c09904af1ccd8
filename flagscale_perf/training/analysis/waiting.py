"""Steps that wait to be folded together with others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

from flagscale_perf.store.decoder import Chunk
from flagscale_perf.training.records import IntervalRecord


class Waiting:
    """What waits to be taken together with others.

    Attributes:
        types, columns: of steps, phases and intervals that follow one another, as in a `Chunk`.
        intervals: that came one by one, each with whether one of its steps is slow.
        has_slow: one of the steps behind the last interval is slow.
        holds_phases: the step of the last phases is still to come.
    """

    def __init__(self) -> None:
        self.types: list[Any] = []
        self.columns: dict[Any, list[list[Any]]] = {}
        self.intervals: list[tuple[IntervalRecord, bool]] = []
        self.has_slow = self.holds_phases = False

    def add(self, chunk: Chunk) -> None:
        """Takes the next ones."""
        self.types += chunk.types
        for type_, columns in chunk.columns.items():
            known = self.columns.setdefault(type_, [[] for _ in columns])
            for column, more in zip(known, columns, strict=True):
                column += more

    def take(self) -> Chunk:
        """Hands out all steps, phases and intervals."""
        chunk = Chunk(self.types, dict(self.columns))
        self.types, self.columns = [], {}
        return chunk

    def mark(self, ends: Sequence[int], slow: Iterable[int]) -> list[bool]:
        """Which intervals have a slow step: each ends behind so many steps, of which those are slow."""
        have_slow = [self.has_slow, *[False] * len(ends)]
        for number in slow:
            have_slow[bisect_right(ends, number)] = True
        self.has_slow = have_slow.pop()
        return have_slow
