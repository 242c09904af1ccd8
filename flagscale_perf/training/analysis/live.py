"""What is worth showing of a run while it goes on: its last intervals, remarks, ranks and state."""

from __future__ import annotations

from collections import deque
from datetime import datetime

from flagscale_perf.spine.clock import NS_PER_S, Anchor
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.records import EventRecord, RunEnd, RunHeader
from flagscale_perf.spine.session import Labels
from flagscale_perf.training.analysis.summary import KILLED
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.ranks.records import RanksRecord, StragglerRecord
from flagscale_perf.training.records import IntervalRecord, Record, StepRecord
from flagscale_perf.training.summary import RUNNING
from flagscale_perf.training.window import end_mono_ns

SHOWN_INTERVALS = 240
SHOWN_EVENTS = 50


class LiveRun:
    """One session as far as it has been read, in bounded memory.

    Attributes:
        header, facts: of the session.
        intervals: the last of them, warm-up aside.
        events: the last of them.
        slow: stragglers by their ranks, as long as they are slow.
        ranks: all of them, in the last stretch that is known.
        last: the last finished iteration; None before the first.
        end: None as long as none was recorded.
    """

    def __init__(self, header: RunHeader) -> None:
        """Raises PerfError for a header whose session id is none."""
        try:
            self._labels = Labels(header)
        except ValueError:
            raise PerfError(
                f"{header.session_id!r} is no session id such as 20240129_103000: this is no run file of flagscale_perf"
            ) from None
        self.header, self.facts = header, RunFacts.of(header.facts)
        self.intervals: deque[IntervalRecord] = deque(maxlen=SHOWN_INTERVALS)
        self.events: deque[EventRecord] = deque(maxlen=SHOWN_EVENTS)
        self.slow: dict[tuple[int, ...], StragglerRecord] = {}
        self.ranks: RanksRecord | None = None
        self.last: StepRecord | None = None
        self.end: RunEnd | None = None
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)

    def add(self, record: Record) -> None:
        """The next record."""
        if isinstance(record, StepRecord):
            self.last = record
        elif isinstance(record, IntervalRecord):
            if record.steps and not record.warmup_only:
                self.intervals.append(record)
        elif isinstance(record, EventRecord):
            self.events.append(record)
        elif isinstance(record, RanksRecord):
            self.ranks = record
        elif isinstance(record, StragglerRecord):
            self.slow.pop(tuple(record.ranks), None)
            if not record.is_over:
                self.slow[tuple(record.ranks)] = record
        elif isinstance(record, RunEnd):
            self.end = record

    def state(self, has_writer: bool) -> str:
        """The end's reason, or "running", or "killed": no end was recorded and nobody writes the file any
        more.
        """
        if self.end is not None:
            return self.end.reason
        return RUNNING if has_writer else KILLED

    def iteration(self) -> int:
        """The last finished one; 0 before the first."""
        if self.last is not None:
            return self.last.iteration
        return self.facts.resume_iteration

    def last_wall_ns(self) -> int:
        """Unix time of the last sign of life."""
        if self.end is not None:
            return self.end.end_wall_ns
        return self._anchor.wall_of(end_mono_ns(self.last)) if self.last else self.header.start_wall_ns

    def time_of(self, event: EventRecord) -> datetime:
        """When it was, in the writer's local time."""
        return self._labels.at(self._anchor.wall_of(event.at_ns))

    def left_s(self) -> float | None:
        """Until the end of training, at the pace of the last interval; None where that is not known."""
        target = self.facts.train_iters
        if not self.intervals or target is None or target < self.iteration():
            return None
        last = self.intervals[-1]
        return (target - self.iteration()) * last.iteration_ns / last.steps / NS_PER_S
