"""Raw marks of all ranks for a window of steps: what a replay of the pipeline needs.

The marks are in every rank's ring anyway; the process that drains a ring keeps those of the window. Rank 0's
writer sets the window (`CaptureControl`), so that it is the same on every rank, and some steps ahead, so that
the request reaches every node in time.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flagscale_perf.device.marks import CLOCK_BITS, time_of
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.files import open_regular
from flagscale_perf.training.phases import NUMBER_OF, PHASE_OF_NUMBER
from flagscale_perf.training.records import CapturedRecord, CaptureRecord, StepRecord

LEAD_NS = 3 * NS_PER_S  # until every node's collector has seen the request
MAX_STEPS = 1000  # of one window, like `arguments.MAX_CAPTURE_STEPS`
_MAX_REQUEST_BYTES = 1024
TIMERS = [""] * len(PHASE_OF_NUMBER)
for _timer, _number in NUMBER_OF.items():
    TIMERS[_number] = _timer


class Window(NamedTuple):
    """The iterations whose marks are kept."""

    first: int
    last: int

    def __contains__(self, iteration: object) -> bool:
        return isinstance(iteration, int) and self.first <= iteration <= self.last


NO_WINDOW = Window(0, -1)


class Capture:
    """Keeps the marks of one rank's steps in the window.

    Attributes:
        window: the iterations to keep.
    """

    def __init__(self, rank: int) -> None:
        """`rank` whose steps they are."""
        self.window = NO_WINDOW
        self._rank = rank
        self._kept: list[CapturedRecord] = []

    def add(self, step: StepRecord, marks: Sequence[int]) -> None:
        """A step and all its marks."""
        if step.iteration in self.window:
            self._kept.append(
                CapturedRecord(
                    self._rank,
                    step.iteration,
                    step.start_ns,
                    step.train_step_ns,
                    packed(marks, step.start_ns),
                )
            )

    def take(self) -> list[CapturedRecord]:
        """What was kept since the last call."""
        kept, self._kept = self._kept, []
        return kept


def packed(marks: Sequence[int], start_ns: int) -> list[int]:
    """Marks as in `CapturedRecord.marks`."""
    numbers, before_ns = [], start_ns
    for mark in marks:
        at_ns = time_of(mark)
        numbers += [mark >> CLOCK_BITS, at_ns - before_ns]
        before_ns = at_ns
    return numbers


def unpacked(captured: CapturedRecord) -> list[int]:
    """The marks that were `packed`."""
    marks, at_ns = [], captured.start_ns
    for code, since_ns in zip(captured.marks[::2], captured.marks[1::2], strict=True):
        at_ns += since_ns
        marks.append((code << CLOCK_BITS) + at_ns)
    return marks


def window_of(content: Any) -> Window:
    """Of a request from another node; an empty window for anything that is none."""
    match content:
        case {"capture": [int(first), int(last)]}:
            return Window(first, last)
    return NO_WINDOW


class CaptureControl:
    """Rank 0's: finds out that marks are to be kept, and of which iterations.

    Attributes:
        own: rank 0's capture.
    """

    def __init__(self, request_path: Path, steps: int | None, announce: Callable[[Any], None]) -> None:
        """`request_path`: where `flagscale-perf capture` leaves its request; `steps`: how many to keep at the
        start without a request; `announce` sends a window to the other ranks.
        """
        self.own = Capture(0)
        self._request_path = request_path
        self._steps = steps
        self._announce = announce
        self._last: StepRecord | None = None

    def resume(self, record: CaptureRecord) -> None:
        """Goes on with a window that a writer before this one has begun."""
        self._steps = None
        self._open(Window(record.first_iteration, record.iteration))

    def step(self, step: StepRecord) -> None:
        """One more step of rank 0."""
        self._last = step

    def take(self) -> list[CaptureRecord | CapturedRecord]:
        """What is to be written: a window that begins, and rank 0's marks in it."""
        kept: list[CaptureRecord | CapturedRecord] = list(self.own.take())
        # Without a step there is no pace yet; one window at a time.
        if self._last is not None and self._last.iteration > self.own.window.last:
            self._steps = self._steps or self._requested()
            if self._steps is not None:
                kept.append(self._begin(self._last, self._steps))
                self._steps = None
        return kept

    def _begin(self, last: StepRecord, steps: int) -> CaptureRecord:
        ahead = -(-LEAD_NS // max(1, last.iteration_ns))
        window = Window(last.iteration + 1 + ahead, last.iteration + ahead + min(steps, MAX_STEPS))
        self._open(window)
        return CaptureRecord(window.first, window.last, TIMERS)

    def _open(self, window: Window) -> None:
        self.own.window = window
        self._announce({"capture": list(window)})

    def _requested(self) -> int | None:
        """How many steps are asked for; removes the request, by which its maker knows that it was read."""
        try:
            fd = open_regular(self._request_path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return None
        with open(fd, "rb") as file:
            content = file.read(_MAX_REQUEST_BYTES)
        with contextlib.suppress(OSError):
            self._request_path.unlink()
        try:
            steps = json.loads(content)["steps"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return steps if type(steps) is int and 0 < steps <= MAX_STEPS else None
