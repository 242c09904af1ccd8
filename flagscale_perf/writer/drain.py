"""Empties the ring: records go to the run file first, and only what is in it is shown anywhere else."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flagscale_perf.sinks.base import SinkContext
from flagscale_perf.sinks.registry import VIEWS
from flagscale_perf.sinks.run_file import RecordsSink
from flagscale_perf.spine.clock import NS_PER_S, Anchor, local_time, monotonic_ns
from flagscale_perf.spine.errors import traceback_lines
from flagscale_perf.spine.files import make_directory, open_new
from flagscale_perf.spine.records import SCHEMA_VERSION, EventRecord, RunEnd, RunHeader
from flagscale_perf.spine.ring import Ring
from flagscale_perf.spine.session import file_names, new_session_id
from flagscale_perf.training.marks import FileRecord, MarksJoin
from flagscale_perf.training.phases import PhaseJoin
from flagscale_perf.training.presentation import PRESENTATION
from flagscale_perf.training.records import (
    HardwareRecord,
    IntervalRecord,
    MarksRecord,
    PhaseRecord,
    Record,
    StepRecord,
)
from flagscale_perf.training.remarks import Watch
from flagscale_perf.training.utilisation import Scale, suspicion
from flagscale_perf.training.window import IntervalWindow
from flagscale_perf.writer.fanout import FanOut, describe
from flagscale_perf.writer.pulse import Pulse
from flagscale_perf.writer.replay import replay
from flagscale_perf.writer.retention import prune
from flagscale_perf.writer.sources import Sources, TakeRanks

PERIOD_S = 0.5
FINISH_LIMIT_S = 4.0  # for a disk that has no room at the end
# so often that a view that never works (`fanout.MAX_VAIN`) is given up while the trainer still waits
RETRY_S = 0.04
BATCH = 2048
KILLED = "killed"
SUSPECT = "suspect"
CLOCK_STEP_NS = 2 * NS_PER_S


@dataclass(frozen=True)
class DrainTask:
    """What a drain is to do.

    Attributes:
        config, facts: of the run header.
        anchor: of the run's start.
        directory: of the files, absolute.
        notes: why this drain takes over from others, each different; recorded as failures, once a session.
        may_serve: see `SinkContext`.
        identity: rank 0's, as `training.ranks.identity` writes it; None where no other ranks are looked for.
    """

    config: dict[str, Any]
    facts: dict[str, Any]
    anchor: Anchor
    directory: Path
    notes: list[str] = field(default_factory=list)
    may_serve: bool = False
    identity: dict[str, Any] | None = None


@dataclass
class _Batch:
    """Records that are on their way into the run file, and how many slots of the ring they give back."""

    records: list[Record]
    slots: int


class Drain:
    """Takes records from a ring until its producer has closed it or is gone, then finishes the session's
    files.

    What the disk refuses stays in the ring and is tried again.
    """

    def __init__(
        self,
        ring: Ring,
        task: DrainTask,
        emit: Callable[[str], None],
        complain: Callable[[str], None],
        sources: Sources | None = None,
    ) -> None:
        """`emit` prints a line of the log, `complain` a line about trouble."""
        self._ring = ring
        self._pulse = Pulse(ring)
        self._task = task
        self._emit = emit
        self._complain = complain
        self._sources = sources or Sources()
        self._watch = Watch(task.facts)
        self._own: list[Record] = []  # made here, not in the ring; go into the next batch
        self._batch: _Batch | None = None
        self._views: FanOut | None = None
        self._run_file: RecordsSink
        self._window: IntervalWindow
        self._phases = PhaseJoin(task.facts)
        self._known: frozenset[FileRecord] = frozenset()  # may be both in the ring and in the run file
        self._has_pruned = False
        self._iteration = task.facts.get("resume_iteration") or 0
        self._run_file_troubles: set[str] = set()
        self._is_trouble_told = False
        self._told_of_views: set[str] = set()
        self._has_ended = False  # the session's end is in the run file
        self._has_complained_of_drops = False
        self._has_told_suspicion = False
        self._next_drop_notice = 1
        self._clock_offset_ns = 0

    def run(self, wait: Callable[[float], None], is_orphan: Callable[[], bool]) -> None:
        """Until the end of the session. `wait` sleeps so many seconds or less; `is_orphan` says that the
        producer is gone.
        """
        is_last = False
        while not is_last:
            is_last = (
                self._ring.end is not None or is_orphan()
            )  # asked before the cycle: nothing can be added after it
            self.cycle()
            if not is_last:
                wait(PERIOD_S)
        self._finish(wait)

    def cycle(self) -> bool:
        """Brings what is in the ring to its places. False while something is not there that may still come
        there.
        """
        self._notice_stall()
        self._notice_clock()
        self._notice_drops()
        is_safe = self._save()
        is_shown = self._views is None or self._views.flush()
        self._notice_stall()
        return is_shown and is_safe and not self._own

    def _save(self) -> bool:
        """Brings everything into the run file; False if the disk does not take it now."""
        try:
            if self._views is None:
                self._begin()
            self._run_file.flush()
            while self._fill():
                self._run_file.flush()
                self._hand_on()
                self._notice_stall()
        except OSError as error:
            self._run_file_fails(error)
            return False
        if self._is_trouble_told:
            self._is_trouble_told = False
            self._tell("note", f"{RecordsSink.name} works again")
        if not self._has_pruned:
            self._prune()
        return True

    def _run_file_fails(self, error: OSError) -> None:
        """Tells of it unless the same has been told: a disk that comes and goes must not flood the
        console.
        """
        trouble = f"{type(error).__name__} {error.errno}"
        if trouble not in self._run_file_troubles:
            self._run_file_troubles.add(trouble)
            self._is_trouble_told = True
            self._tell("failure", describe(RecordsSink, error))

    def _begin(self) -> None:
        """Claims a session, or goes on with the one of a process that died. Raises OSError."""
        earlier = self._ring.session
        session_id = earlier or _claim(self._task)
        self._ring.session = session_id
        anchor = self._task.anchor
        header = RunHeader(
            SCHEMA_VERSION, session_id, anchor.wall_ns, anchor.mono_ns, self._task.facts, self._task.config
        )
        context = SinkContext(
            header,
            self._task.directory,
            self._emit,
            PRESENTATION,
            resumed=earlier is not None,
            may_serve=self._task.may_serve,
        )
        self._run_file = RecordsSink(context)
        self._window = IntervalWindow(
            self._task.config["perf_log_interval"], anchor, Scale.of(self._task.facts)
        )
        views = FanOut(VIEWS, context, self._tell_of_view)
        known_texts = self._rebuild(views) if earlier else set()
        self._own += [self._event("failure", note) for note in self._task.notes if note not in known_texts]
        self._views = views

    def _rebuild(self, views: FanOut) -> set[str]:
        """Everything the earlier process knew, from its run file; returns the texts of its events. Raises
        OSError.
        """
        owed: IntervalRecord | None = None
        texts: set[str] = set()
        known: deque[FileRecord] = deque(
            maxlen=4 * BATCH
        )  # a batch, and what was remarked between its records
        try:
            for record in replay(self._path("records")):
                self._pulse.go_on()
                views.rebuild(record)
                self._watch.look(record)  # what there was to say has been said
                self._has_ended |= isinstance(record, RunEnd)
                if isinstance(record, FileRecord):
                    known.append(record)
                if isinstance(record, EventRecord):
                    texts.add(record.text)
                    self._has_told_suspicion |= record.name == SUSPECT
                elif isinstance(record, PhaseRecord):
                    self._phases.hold(record)
                elif isinstance(record, StepRecord):
                    self._iteration = record.iteration
                    owed = self._window.add(record, self._ring.dropped, self._phases.take(record)) or owed
                elif isinstance(record, HardwareRecord):
                    self._window.add_hardware(record)
                elif isinstance(record, IntervalRecord):
                    owed = None
                    self._window.close()  # the session's last one is there before its window is full
        except FileNotFoundError:
            return texts  # removed meanwhile: the session goes on with what comes
        self._known = frozenset(known)
        if owed is not None:
            self._own += self._completed(owed)
        return texts

    def _prune(self) -> None:
        self._has_pruned = True
        try:
            prune(self._task.directory, self._task.config["perf_max_log_files"])
        except OSError as error:
            self._tell(
                "failure",
                f"old sessions: {type(error).__name__}: {error}; more than --perf-max-log-files of them stay",
            )

    def _fill(self) -> bool:
        """Makes the next batch unless one is waiting; False if there is nothing to do."""
        if self._batch is not None:
            return True
        taken = self._take()
        self._take_readings()  # after the steps, so that none of them ended after the last reading there is
        self._take_ranks(self._sources.ranks.take)
        records, self._own = self._own, []
        join = MarksJoin()
        for slot in taken:
            for record in join.take(slot):
                if record not in self._known:
                    records += self._with_interval(record)
        if not taken:
            self._known = frozenset()  # everything the earlier process may have left in the ring has come by
        if not records and not taken:
            return False
        self._batch = _Batch(records, len(taken))
        for each in records:
            self._run_file.write(each)
        return True

    def _take(self) -> list[Any]:
        """The oldest records of the ring, without marks at the end: their step comes in a later batch, and
        they with it.

        No step fills a batch with marks: where nothing else is in it, steps were lost, and theirs must not
        hold up the rest.
        """
        taken = self._ring.take(BATCH)
        end = len(taken)
        while end and isinstance(taken[end - 1], MarksRecord):
            end -= 1
        if end or len(taken) < BATCH:
            return taken[:end]
        last = taken[-1].iteration
        return [record for record in taken if record.iteration != last] or taken

    def _with_interval(self, record: FileRecord) -> list[Record]:
        if isinstance(record, PhaseRecord):
            self._phases.hold(record)
        if not isinstance(record, StepRecord):
            return [record]
        self._iteration = record.iteration
        phases = self._phases.take(record)
        self._sources.ranks.step(record, phases)
        interval = self._window.add(record, self._ring.dropped, phases)
        return [record, *self._remarks(record), *self._completed(interval)]

    def _completed(self, interval: IntervalRecord | None) -> list[Record]:
        """The interval if there is one, what there is to say about it, and behind the session's first suspect
        one what to check.
        """
        if interval is None:
            return []
        completed = [interval, *self._remarks(interval), *self._sources.ranks.interval(interval)]
        text = None if self._has_told_suspicion else suspicion(interval, self._task.facts)
        if text is None:
            return completed
        self._has_told_suspicion = True
        self._complain(f"flagscale_perf: {text}")
        return [*completed, self._event(SUSPECT, text)]

    def _remarks(self, record: Record) -> list[Record]:
        return [self._event(remark.name, remark.text) for remark in self._watch.look(record)]

    def _take_readings(self) -> None:
        readings, notes = self._sources.readings()
        for reading in readings:
            self._window.add_hardware(reading)
            self._sources.ranks.reading(reading)
            self._own += [reading, *self._remarks(reading)]
        for note in notes:
            self._tell("hardware", note)

    def _take_ranks(self, take: TakeRanks) -> None:
        records, notes = take()
        self._own += records
        for note in notes:
            self._tell("rank", note)

    def _hand_on(self) -> None:
        """The batch is in the run file: now it may leave the ring and be shown."""
        if self._batch is not None and self._views is not None:
            self._ring.commit(self._batch.slots)
            self._views.write(self._batch.records)
            self._batch = None

    def _finish(self, wait: Callable[[float], None]) -> None:
        deadline_ns = monotonic_ns() + int(FINISH_LIMIT_S * NS_PER_S)
        end = self._ring.end
        at_ns = end.at_ns if end else monotonic_ns()
        if self._insist(self._save, wait, deadline_ns):
            reason = end.reason if end else KILLED
            if not self._has_ended:  # where it has, the writer before this one died after it
                self._own += self._completed(self._window.close(self._ring.dropped))
                self._take_ranks(self._sources.ranks.close)
                self._own.append(
                    RunEnd(reason, self._task.anchor.wall_of(at_ns), self._iteration, self._ring.dropped)
                )
            if (
                not self._insist(self.cycle, wait, deadline_ns)
                and self._views is not None
                and self._views.tell_unfinished()
            ):
                self.cycle()
        self._close()

    def _close(self) -> None:
        """Every file, and the last word to the trainer."""
        if self._views is None:
            self._ring.summary = ""
            return
        self._views.close()
        try:
            self._run_file.close()
        except OSError as error:
            self._complain(f"flagscale_perf: {describe(RecordsSink, error)}")
        summary = self._path("summary")
        self._ring.summary = (
            str(summary) if os.path.isfile(summary) else ""
        )  # False, too, where nobody can tell

    def _insist(self, attempt: Callable[[], bool], wait: Callable[[float], None], deadline_ns: int) -> bool:
        """Tries again until the deadline; not where nothing has ever worked."""
        while not (worked := attempt()) and self._views is not None and monotonic_ns() < deadline_ns:
            wait(RETRY_S)
        return worked

    def _path(self, file: str) -> Path:
        return self._task.directory / file_names(self._ring.session or "")[file]

    def _tell(self, name: str, text: str) -> None:
        """Records an event; complains if it is a failure."""
        self._own.append(self._event(name, text))
        if name == "failure":
            for line in (
                f"flagscale_perf: {text}",
                *traceback_lines(bool(self._task.config.get("perf_debug"))),
            ):
                self._complain(line)

    def _tell_of_view(self, name: str, text: str) -> None:
        """The same, a failure once: where the run file refuses, the session is begun again and again, and
        every view opened.
        """
        if name != "failure" or text not in self._told_of_views:
            self._told_of_views.add(text)
            self._tell(name, text)

    def _event(self, name: str, text: str) -> EventRecord:
        return EventRecord(name, monotonic_ns(), self._iteration, text)

    def _notice_drops(self) -> None:
        dropped = self._ring.dropped
        if dropped >= self._next_drop_notice:
            self._next_drop_notice = 2 * dropped
            text = f"{dropped} records lost so far: more came than the disk took"
            self._tell("drop", text)
            if not self._has_complained_of_drops:
                self._has_complained_of_drops = True
                self._complain(f"flagscale_perf: {text}")

    def _notice_stall(self) -> None:
        """The trainer has told the console meanwhile."""
        if (stood_s := self._pulse.beat()) is not None:
            self._own.append(
                self._event(
                    "failure",
                    f"the writer stood still for {stood_s:.0f} s: its disk did not answer, or it was stopped",
                )
            )

    def _notice_clock(self) -> None:
        """Labels keep the start's clock; a clock that was set since is worth a line."""
        offset_ns = time.time_ns() - self._task.anchor.wall_of(monotonic_ns())
        if abs(offset_ns - self._clock_offset_ns) > CLOCK_STEP_NS:
            moved_s = (offset_ns - self._clock_offset_ns) / NS_PER_S
            self._clock_offset_ns = offset_ns
            self._tell("clock", f"the wall clock was set by {moved_s:+.1f} s; times here go on as before")


def _claim(task: DrainTask) -> str:
    """A session id nobody else has, its run file made. Raises OSError."""
    make_directory(task.directory)
    start = local_time(task.anchor.wall_ns)
    attempt = 1
    while True:
        session_id = new_session_id(start, attempt)
        try:
            os.close(open_new(task.directory / file_names(session_id)["records"]))
        except FileExistsError:
            attempt += 1
            continue
        return session_id
