"""Raw marks of all ranks for a window of steps: what a replay of the pipeline needs.

The marks are in every rank's ring anyway; the process that drains a ring keeps those of the window. Rank 0's
writer sets the window (`CaptureControl`), so that it is the same on every rank, and some steps ahead, so that
the request reaches every node in time.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from flagscale_perf.device.marks import CLOCK_BITS, END, time_of
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.units import numbered, ranges, stretch
from flagscale_perf.training.phases import NUMBER_OF, PHASE_OF_NUMBER
from flagscale_perf.training.rank_records import StragglerRecord
from flagscale_perf.training.records import CapturedRecord, CaptureRecord, Outcome, StepRecord
from flagscale_perf.training.requests import STEPS, RequestFile
from flagscale_perf.training.settled import is_judged
from flagscale_perf.training.unasked import STEPS as UNASKED_STEPS
from flagscale_perf.training.unasked import Unasked

LEAD_NS = 3 * NS_PER_S  # until every node's collector has seen the request
LATE_NS = 60 * NS_PER_S  # after a window: by then the marks of all nodes have come, or never will
MAX_STEPS = 1000  # of one window, like `arguments.MAX_CAPTURE_STEPS`
_RECENT_STEPS = 8  # of which the shortest is the pace: a single slow one would make the lead too short
_MOST_SHOWN = 8
# The timers in which each of `Messages` is, and the end of these at which it is.
_MESSAGES = [
    ([NUMBER_OF[way], NUMBER_OF[both]], place)
    for way, both, place in (
        ("forward-send", "forward-send-backward-recv", 0),
        ("forward-recv", "backward-send-forward-recv", 1),
        ("backward-send", "backward-send-forward-recv", 0),
        ("backward-recv", "forward-send-backward-recv", 1),
    )
]
_CODES = {*range(2 * len(PHASE_OF_NUMBER)), END >> CLOCK_BITS}
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
        marks: that the last step had.
    """

    def __init__(self, rank: int) -> None:
        """`rank` whose steps they are."""
        self.window = NO_WINDOW
        self.marks = 0
        self._rank = rank
        self._kept: list[CapturedRecord] = []

    def add(self, step: StepRecord, marks: Sequence[int]) -> None:
        """A step and all its marks."""
        self.marks = len(marks)
        if step.iteration in self.window:
            kept = packed(marks, step.start_ns)
            times = step.start_ns, step.train_step_ns
            self._kept.append(CapturedRecord(self._rank, step.iteration, *times, kept))

    def take(self) -> list[CapturedRecord]:
        """The steps kept since the last call."""
        kept, self._kept = self._kept, []
        return kept


def packed(marks: Sequence[int], start_ns: int) -> list[int]:
    """Marks as in `CapturedRecord.marks`: of each its code, and the nanoseconds since the one before."""
    numbers, before_ns = [], start_ns
    for mark in marks:
        at_ns = time_of(mark)
        numbers += [mark >> CLOCK_BITS, at_ns - before_ns]
        before_ns = at_ns
    return numbers


def unpacked(captured: CapturedRecord) -> list[int]:
    """The marks that were `packed`."""
    return [(code << CLOCK_BITS) + at_ns for code, at_ns in coded(captured)]


def coded(captured: CapturedRecord) -> Iterator[tuple[int, int]]:
    """Of each mark its code and when it was taken."""
    at_ns = accumulate(captured.marks[1::2], initial=captured.start_ns)
    next(at_ns)
    return zip(captured.marks[::2], at_ns, strict=True)


def times_of(captured: CapturedRecord) -> dict[int, list[tuple[int, int]]]:
    """By the number of a timer, begin and end of each time that it ran."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    begun: dict[int, int] = {}
    for code, at_ns in coded(captured):
        number = code >> 1
        if not code & 1:
            begun[number] = at_ns
        elif number in begun:
            found[number].append((begun.pop(number), at_ns))
    return found


class Messages(NamedTuple):
    """The messages of a step of one rank of a 1F1B pipeline, in their order.

    Attributes:
        sent_on, sent_back: when it began to send each, to the next stage and to the one before.
        taken_on, taken_back: when it had each, from the stage before and from the next one.
    """

    sent_on: list[int]
    taken_on: list[int]
    sent_back: list[int]
    taken_back: list[int]

    def forward(self, behind: Messages) -> list[tuple[int, int]]:
        """Begin and end of each to the rank behind it; none where marks are missing."""
        return _matched(self.sent_on, behind.taken_on)

    def backward(self, before: Messages) -> list[tuple[int, int]]:
        """The same to the rank before it."""
        return _matched(self.sent_back, before.taken_back)


def _matched(sent: list[int], taken: list[int]) -> list[tuple[int, int]]:
    return list(zip(sent, taken, strict=True)) if len(sent) == len(taken) else []


def messages_of(captured: CapturedRecord) -> Messages:
    """When a rank sent and had its messages."""
    times = times_of(captured)
    return Messages(
        *(
            sorted(span[place] for timer in timers for span in times.get(timer, ()))
            for timers, place in _MESSAGES
        )
    )


def is_sound(captured: CapturedRecord) -> bool:
    """Whether it can be `unpacked` into marks of this version, and took time; not so where a file is
    damaged.
    """
    codes, since_ns = captured.marks[::2], captured.marks[1::2]
    return (
        len(codes) == len(since_ns)
        and _CODES.issuperset(codes)
        and min(captured.start_ns, captured.train_step_ns - 1, *since_ns) >= 0
        and max(captured.start_ns, captured.train_step_ns, *since_ns) < 1 << CLOCK_BITS
    )


def window_of(content: Any) -> Window:
    """The window of a request from another node; an empty one for anything that is no request."""
    match content:
        case {"capture": [int(first), int(last)]}:
            return Window(first, last)
    return NO_WINDOW


class Coming:
    """The marks of a window that have not arrived, by rank.

    Attributes:
        over_ns: start of rank 0's first step from the window's end on; None before it.
    """

    def __init__(self, window: Window, ranks: int) -> None:
        """Begins with all steps of all ranks missing: a bit for each step, since both may be thousands."""
        self.over_ns: int | None = None
        self._window = window
        self._missing = [(1 << (window.last + 1 - window.first)) - 1] * ranks

    def came(self, captured: CapturedRecord) -> None:
        """Marks of one step of one rank."""
        if captured.rank < len(self._missing) and captured.iteration in self._window:
            self._missing[captured.rank] &= ~(1 << (captured.iteration - self._window.first))

    def step(self, step: StepRecord) -> None:
        """One more step of rank 0. Data that was passed over makes no marks on any rank."""
        if step.outcome == Outcome.DATA_SKIPPED:
            passed = range(step.iteration + 1 - step.iterations, step.iteration + 1)
            bits = sum(1 << (each - self._window.first) for each in passed if each in self._window)
            self._missing = [missing & ~bits for missing in self._missing]
        if self.over_ns is None and step.iteration >= self._window.last:
            self.over_ns = step.start_ns

    @property
    def is_complete(self) -> bool:
        """Whether there is nothing to come."""
        return not any(self._missing)

    def text(self, last_iteration: int) -> str:
        """Says what is missing, and why. `last_iteration`: rank 0's."""
        first, last = self._window
        parts = []
        if last_iteration < last:
            never = stretch("iteration", max(first, last_iteration + 1), last)
            parts.append(f"{never} did not come, as the training ended at {last_iteration}")
        if lost := self._lost(min(last, last_iteration)):
            more = f" and {len(lost) - _MOST_SHOWN} more" if len(lost) > _MOST_SHOWN else ""
            parts.append(
                f"there are no marks of {'; '.join(lost[:_MOST_SHOWN])}{more}: they were not taken, or lost,"
                " or these steps were over when rank 0 asked for them"
            )
        return f"{stretch('iteration', first, last)} are not captured whole: {', and '.join(parts)}"

    def _lost(self, last: int) -> list[str]:
        first = self._window.first
        ranks_of = defaultdict(list)
        for rank, missing in enumerate(self._missing):
            ranks_of[missing & ((1 << max(0, last + 1 - first)) - 1)].append(rank)
        ranks_of.pop(0, None)
        return [
            f"{ranges(each for each in range(first, last + 1) if bits >> (each - first) & 1)}"
            f" of {numbered('rank', ranks)}"
            for bits, ranks in ranks_of.items()
        ]


class CaptureControl:
    """Rank 0's: finds out that marks are to be kept, and of which iterations.

    Attributes:
        own: rank 0's capture.
    """

    def __init__(
        self, request_path: Path, steps: int | None, announce: Callable[[Any], None], ranks: int
    ) -> None:
        """`request_path`: where `flagscale-perf capture` leaves its request; `steps`: how many to keep at the
        start without a request, None: as `Unasked` does, 0: only with one; `announce` sends a window to the
        other ranks; `ranks`: how many there are.
        """
        self.own = Capture(0)
        self._requests = RequestFile(request_path)
        self._steps = steps or None
        self._unasked = None if steps == 0 else Unasked(ranks, has_first=steps is not None)
        self._announce = announce
        self._ranks = ranks
        self._last: StepRecord | None = None
        self._recent_ns: deque[int] = deque(maxlen=_RECENT_STEPS)
        self._coming: dict[Window, Coming] = {}

    def resume(self, record: CaptureRecord) -> None:
        """Goes on with a window that a writer before this one has begun."""
        self._steps = None
        if self._unasked is not None and self._last is not None:
            self._unasked.taken(self._last.start_ns, self.own.marks)
        self._open(Window(record.first_iteration, record.iteration), record.why)

    def reported(self) -> None:
        """Tells the capture that the writer has reported what the oldest window lacks."""
        self._coming.pop(next(iter(self._coming), NO_WINDOW), None)

    def step(self, step: StepRecord) -> None:
        """One more step of rank 0."""
        self._last = step
        if self._unasked is not None:
            self._unasked.step(step)
        if is_judged(step):
            self._recent_ns.append(step.iteration_ns)
        for coming in self._coming.values():
            coming.step(step)

    def late(self, records: Iterable[object]) -> None:
        """Among these may be ranks that are named as late."""
        for record in records:
            if isinstance(record, StragglerRecord) and self._unasked is not None:
                self._unasked.late(record)

    def take(self) -> list[CaptureRecord | CapturedRecord]:
        """Records to write: a window that begins, and rank 0's marks in it."""
        kept: list[CaptureRecord | CapturedRecord] = list(self.own.take())
        first = self.first_ahead()
        if (
            first is not None and self._last is not None and self._last.iteration > self.own.window.last
        ):  # one at a time
            steps, self._steps = self._steps or self._requested(), None
            if steps is not None:
                kept.append(self._begin(first, steps))
            elif self._unasked is not None:
                now_ns, marks = self._last.start_ns, self.own.marks
                if why := self._unasked.due(now_ns, marks):
                    self._unasked.taken(now_ns, marks)
                    kept.append(self._begin(first, UNASKED_STEPS, why))
        return kept

    def came(self, written: Iterable[object]) -> None:
        """Among what was written may be marks of any rank."""
        for record in written:
            if isinstance(record, CapturedRecord):
                for coming in self._coming.values():
                    coming.came(record)

    def missing(self, is_over: bool = False) -> list[str]:
        """Says what windows lack for good, each once. `is_over`: the session is over."""
        texts = []
        for window, coming in list(self._coming.items()):
            is_due = is_over or self._is_late(coming)
            if coming.is_complete or is_due:
                del self._coming[window]
            if not coming.is_complete and is_due:
                texts.append(coming.text(self._last.iteration if self._last is not None else 0))
        return texts

    def _is_late(self, coming: Coming) -> bool:
        if self._last is None or coming.over_ns is None:
            return False
        return self._last.start_ns - coming.over_ns > LATE_NS

    def first_ahead(self) -> int | None:
        """The first iteration of which every rank still hears in time; None as long as there is no pace."""
        if self._last is None or not self._recent_ns:
            return None
        return self._last.iteration + 1 + -(-LEAD_NS // max(1, min(self._recent_ns)))

    def _begin(self, first: int, steps: int, why: str = "") -> CaptureRecord:
        window = Window(first, first - 1 + min(steps, MAX_STEPS))
        self._open(window, why)
        return CaptureRecord(window.first, window.last, TIMERS, why)

    def _open(self, window: Window, why: str) -> None:
        """What a window lacks that nobody asked for is not reported."""
        self.own.window = window
        if not why:
            self._coming[window] = Coming(window, self._ranks)
        self._announce({"capture": list(window)})

    def _requested(self) -> int | None:
        """How many steps are asked for."""
        steps = self._requests.take(STEPS)
        return steps if type(steps) is int and 0 < steps <= MAX_STEPS else None
