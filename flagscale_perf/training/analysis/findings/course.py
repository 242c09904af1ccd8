"""The whole run in a bounded number of stretches, each the intervals of some iterations added up."""

from __future__ import annotations

from collections.abc import Sequence

from flagscale_perf.training.columns import Intervals
from flagscale_perf.training.stretch import Stretch

MAX_STRETCHES = 1024


class Course:
    """Folds intervals: one each, then two, four ... to a stretch, so that memory does not grow."""

    def __init__(self) -> None:
        self._stretches: list[Stretch] = []
        self._open: list[Stretch] = []  # the one that is not full yet, if any
        self._in_open, self._each = 0, 1  # intervals: of that one, and of a full one

    def add(self, intervals: Intervals) -> None:
        """Takes the next ones, which have steps and are not warm-up."""
        begin = 0
        while begin < len(intervals):
            end = min(len(intervals), begin + self._each - self._in_open)
            self._open.append(Stretch.of(intervals.part(begin, end)))
            self._open = [Stretch.of(self._open)] if len(self._open) > 1 else self._open
            self._in_open, begin = self._in_open + end - begin, end
            if self._in_open == self._each:
                self._close()

    def _close(self) -> None:
        self._stretches += self._open
        self._open, self._in_open = [], 0
        if len(self._stretches) == MAX_STRETCHES:
            pairs = zip(self._stretches[::2], self._stretches[1::2], strict=True)
            self._stretches = list(map(Stretch.of, pairs))
            self._each *= 2

    def since(self, iteration: int) -> Sequence[Stretch]:
        """The stretches from that iteration on."""
        return [one for one in [*self._stretches, *self._open] if one.iteration >= iteration]
