"""The whole run in a bounded number of stretches, each the intervals of some iterations added up."""

from __future__ import annotations

from collections.abc import Sequence

from flagscale_perf.training.records import IntervalRecord
from flagscale_perf.training.stretch import Part, Stretch

MAX_STRETCHES = 1024
_BLOCK = 256  # intervals that are added up together


class Course:
    """Folds intervals: one each, then two, four ... to a stretch, so that memory does not grow."""

    def __init__(self) -> None:
        self._stretches: list[Stretch] = []
        self._open: list[Part] = []  # of the stretch that is not full yet
        self._in_open, self._each = 0, 1

    def add(self, interval: IntervalRecord) -> None:
        """Takes the next one that has steps and is not warm-up."""
        self._open.append(interval)
        self._in_open += 1
        if self._in_open == self._each:
            self._stretches.append(Stretch.of(self._open))
            self._open, self._in_open = [], 0
        elif len(self._open) == _BLOCK:
            self._open = [Stretch.of(self._open)]
        if len(self._stretches) == MAX_STRETCHES:
            pairs = zip(self._stretches[::2], self._stretches[1::2], strict=True)
            self._stretches = list(map(Stretch.of, pairs))
            self._each *= 2

    def since(self, iteration: int) -> Sequence[Stretch]:
        """The stretches from that iteration on."""
        last = [Stretch.of(self._open)] if self._open else []
        return [one for one in [*self._stretches, *last] if one.iteration >= iteration]
