"""Empties the ring: records go to the run file first, and only what is in it is shown anywhere else."""

from __future__ import annotations

import os
import shlex
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flagscale_perf.sinks.run_file import RecordsSink
from flagscale_perf.spine import stop_note
from flagscale_perf.spine.clock import NS_PER_S, local_time, monotonic_ns
from flagscale_perf.spine.companion import PATIENCE_S
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.language import live
from flagscale_perf.spine.live import BEGINS, ENDS, FindingRecord
from flagscale_perf.spine.peers.rings import AnyRing
from flagscale_perf.spine.records import ELSEWHERE, KILLED, STOPPED, Record, RunEnd
from flagscale_perf.spine.ring import RingEnd
from flagscale_perf.spine.session import new_session_id
from flagscale_perf.writer.fanout import FanOut, describe
from flagscale_perf.writer.instrument import Instrument
from flagscale_perf.writer.journal import Journal, Notices
from flagscale_perf.writer.losses import described
from flagscale_perf.writer.messages import Line, Send
from flagscale_perf.writer.neighbours import Neighbours
from flagscale_perf.writer.notify import Notifier
from flagscale_perf.writer.refused import MOST_ITERATIONS, room_in
from flagscale_perf.writer.retention import prune
from flagscale_perf.writer.session import NOTHING, Session, header_of, recover
from flagscale_perf.writer.task import WriterTask

FINISH_LIMIT_S = 4.0  # at the end, for views that cannot be written
RESCUED = "flagscale_perf_"  # directories of run files that their own directory did not take, below $TMPDIR
# so often that a view that never works (`fanout.MAX_VAIN`) is given up while the trainer still waits
RETRY_S = 0.04
BATCH = 2048
MOST_KNOWN = 4 * BATCH  # a batch, and what was remarked between its records


@dataclass(frozen=True)
class _Batch:
    """Records that are on their way into the run file, and how many slots of the ring they give back."""

    records: list[Record]
    slots: int


class Drain:
    """Takes records from a ring until its producer has closed it or is gone, then finishes the session's
    files. What the disk refuses stays in the ring and is tried again.

    Attributes:
        patience_s: at the end, without anything written, until what is left is saved elsewhere.
    """

    def __init__(
        self,
        ring: AnyRing,
        task: WriterTask,
        instrument: Instrument,
        send: Send,
        on_begun: Callable[[], None] = lambda: None,
    ) -> None:
        """`send` takes lines for the console and stderr; `on_begun` is called when the session's header is in
        its run file and its views are open.
        """
        self._ring = ring
        self._task = task
        self._instrument = instrument
        self._on_begun = on_begun
        self._journal = Journal(send, lambda: instrument.position, task.options.perf_debug)
        self._notices = Notices(ring, task.anchor, self._journal, _notifier_of(task, self._journal))
        self._session: Session | None = None
        self._rescuing, self._is_rescued = threading.Lock(), False
        self.patience_s = PATIENCE_S
        self._earlier = NOTHING
        self._batch: _Batch | None = None
        self._batches = 0  # that are in the run file
        self._neighbours: Neighbours | None = None  # until the directory has been looked through
        self._troubles = _Troubles(ring, self._journal, self._views)

    def run(self, wait: Callable[[float], None], is_orphan: Callable[[], bool]) -> None:
        """Drains the ring until the session ends. `wait` sleeps at most the given seconds; `is_orphan` says
        whether the producer is gone.
        """
        is_last = False
        while not is_last:
            # asked before the cycle: nothing can be added after it
            is_last = self._ring.end is not None or is_orphan()
            self.cycle()
            if not is_last:
                wait(self._instrument.period_s)
        self._finish(wait)

    def cycle(self) -> bool:
        """Brings what is in the ring to its places. False while something missing there may still come."""
        self._notices.look()
        is_safe = self._save()
        is_shown = self._session is None or self._session.views.flush()
        self._troubles.note()
        self._notices.beat()
        return is_shown and is_safe and not self._journal.waiting

    def _save(self) -> bool:
        """Brings everything into the run file; False if the disk does not take it now."""
        try:
            session = self._session or self._begin()
            session.run_file.flush()
            while self._fill(session):
                session.run_file.flush()
                self._hand_on(session)
                self._notices.look()
        except OSError as error:
            self._troubles.run_file_fails(error)
            return False
        self._troubles.run_file_works()
        if self._neighbours is None:
            self._neighbours = Neighbours(self._task.directory)
            self._prune()
        text = self._neighbours.look(session.header)
        if text is not None and text not in self._earlier.texts:
            self._journal.report("note", text)
            self._journal.complain(text)
        return True

    def _views(self) -> FanOut | None:
        return None if self._session is None else self._session.views

    def _begin(self) -> Session:
        """Claims a session, or goes on with the one of a writer that died. Raises OSError."""
        session = Session(
            self._ring, self._task, self._instrument, self._journal.send, self._troubles.report_view
        )
        self._instrument.begin()
        if session.is_resumed:
            try:
                beat = self._notices.pulse.go_on
                self._earlier = recover(session, self._instrument, self._ring, beat, MOST_KNOWN)
            except OSError:
                session.run_file.close()  # with its lock, which the next try takes
                raise
            self._journal.waiting += self._journal.recorded(self._instrument.owed())
        for note in self._task.notes:
            if note not in self._earlier.texts:
                self._journal.waiting.append(self._journal.event("failure", note))
        self._session = session
        self._notices.notifier.resume(session.header.session_id, self._earlier.findings)
        self._on_begun()
        return session

    def _prune(self) -> None:
        keep = self._task.options.perf_max_log_files
        try:
            removed = prune(self._task.directory, keep)
        except OSError as error:
            self._journal.report(
                "failure",
                f"old sessions: {type(error).__name__}: {error}; more than --perf-max-log-files of them stay",
            )
            return
        if removed:
            which = removed[0] if len(removed) == 1 else f"{len(removed)} from {removed[-1]} to {removed[0]}"
            text = f"--perf-max-log-files {keep}: old sessions removed from {self._task.directory}: {which}"
            self._journal.report("note", text)
            self._journal.send(Line(live(f"flagscale_perf: {text}")))

    def _fill(self, session: Session) -> bool:
        """Makes the next batch unless one is waiting; False if there is nothing to do."""
        return self._batch is not None or self._make_batch(self._ring.take(BATCH), session.run_file)

    def _make_batch(self, slots: Sequence[Any], run_file: RecordsSink) -> bool:
        joined = self._instrument.join(slots, is_full=len(slots) == BATCH)
        # after the ring, so that none of its records is younger than the last of these
        self._journal.waiting += self._journal.recorded(self._instrument.collect())
        records = self._journal.take()
        for record in joined.records:
            if not self._earlier.known or encode(record) not in self._earlier.known:
                records.append(record)
                records += self._journal.recorded(self._instrument.fold(record, self._ring.dropped))
        if not joined.slots:  # everything the earlier writer may have left in the ring has come by
            self._earlier = self._earlier._replace(known=frozenset())
        if not records and not joined.slots:
            return False
        self._batch = _Batch(records, joined.slots)
        for record in records:
            run_file.write(record)
        return True

    def _hand_on(self, session: Session) -> None:
        """The batch is in the run file: now it may leave the ring and be shown."""
        if self._batch is not None:
            self._ring.commit(self._batch.slots)
            self._batches += 1
            session.views.write(self._batch.records)
            if self._batch.slots > BATCH // 2:  # behind: views keep only so much until they are flushed
                session.views.flush()
            self._batch = None

    def _finish(self, wait: Callable[[float], None]) -> None:
        if self._insist(self._save, wait, self.patience_s):
            if not self._earlier.has_ended:  # where it has, the writer before this one died after it
                last = self._instrument.close(self._ring.dropped)
                self._journal.waiting += self._journal.recorded([*last, *self._killed()])
                self._notices.anchor()
                self._journal.waiting.append(self._end())
            is_done = self._insist(self.cycle, wait, FINISH_LIMIT_S)
            if self._notices.notifier.is_busy:
                self._notices.notifier.close()
                self.cycle()
            if not is_done and self._session is not None and self._session.views.report_unfinished():
                self.cycle()
        else:
            self._notices.notifier.close()
            self.rescue(answers=True)
        self._close()

    def _killed(self) -> list[FindingRecord]:
        """The measured process is gone without a word, which nobody else tells; the run's end logs it."""
        pid = self._task.pid
        if pid == os.getpid() or _reason(self._ring.end) != KILLED:
            return []
        text, evidence = f"process {pid}, which was measured, is gone: it was killed", {"pid": pid}
        return [FindingRecord("lost_rank", BEGINS, text, subject="own", evidence=evidence, is_logged=False)]

    def _end(self) -> RunEnd:
        end = self._ring.end
        wall_ns = self._task.anchor.wall_of(end.at_ns if end else monotonic_ns())
        return RunEnd(_reason(end), wall_ns, self._instrument.position, self._ring.dropped)

    def rescue(self, answers: bool = False) -> None:
        """Saves what is not in the run file in one below $TMPDIR, once. Called at the very end: on another
        thread where this one waits for a call that does not return. Where the disk `answers`, the run file
        gets an end that says so.
        """
        with self._rescuing:
            if not self._is_rescued:
                self._is_rescued = True
                self._rescue(self._session if answers else None)

    def _rescue(self, refused: Session | None) -> None:
        try:
            directory = Path(tempfile.mkdtemp(prefix=RESCUED))
            longest = self._last_words(directory, MOST_ITERATIONS)
            room = None if refused is None else room_in(refused.run_file, longest)
            session_id = self._ring.session or new_session_id(local_time(self._task.anchor.wall_ns), 1)
            run_file = RecordsSink(directory, header_of(session_id, self._task, self._instrument.name))
            for record in () if room is None else room.moved:
                run_file.write(record)
            if self._batch is not None:  # joined and folded already; the rest is joined behind it
                for record in self._batch.records:
                    run_file.write(record)
            elif self._session is None:
                self._instrument.begin()
            self._make_batch(self._ring.behind(self._batch.slots if self._batch else 0), run_file)
            run_file.write(self._end())
            run_file.flush()
            run_file.close()
        except OSError as error:
            self._journal.complain(f"what waited could not be saved elsewhere: {error}")
            return
        self._journal.complain(f"{self._task.directory} takes no more: what waited is in {directory}")
        if room is not None and refused is not None:
            try:
                refused.run_file.end_at(room.place, self._last_words(directory, room.last))
            except OSError as error:
                self._journal.complain(f"the run file has no end: {error}")

    def _last_words(self, directory: Path, last: int | None) -> list[Record]:
        """The end of a run file whose disk takes no more, and which has steps up to `last`."""
        error = self._troubles.run_file_error
        since = "" if last is None else f", from iteration {last + 1} on"
        why = (error and error.strerror) or "its disk refuses them"
        text = f"{ELSEWHERE}{os.uname().nodename}:{directory}{since}: {why}"
        return [self._journal.event("failure", text), self._end()]

    def _close(self) -> None:
        if self._session is None:
            self._troubles.note()
            self._ring.summary = ""
            return
        try:
            self._session.close()
        except OSError as error:
            self._troubles.run_file_error = error
            self._journal.complain(describe(RecordsSink, error))
        self._troubles.note()
        self._ring.summary = self._session.summary()

    def _insist(self, attempt: Callable[[], bool], wait: Callable[[float], None], limit_s: float) -> bool:
        """Tries again until no batch has been saved for so long; not where nothing has ever worked."""
        saved, since_ns = self._batches, monotonic_ns()
        while not (worked := attempt()) and self._session is not None:
            if saved != self._batches:
                saved, since_ns = self._batches, monotonic_ns()
            if monotonic_ns() - since_ns >= limit_s * NS_PER_S:
                break
            wait(RETRY_S)
        return worked


class _Troubles:
    """Keeps track of what cannot be written now. The ring outlives the writer, so each trouble is noted in it
    before it is reported: a process that ends as soon as it is told looks for the reason there. Only a view
    that cannot be opened is reported first.

    Attributes:
        run_file_error: why the last try to write the run file failed; None if it succeeded.
    """

    def __init__(self, ring: AnyRing, journal: Journal, views: Callable[[], FanOut | None]) -> None:
        self._ring, self._journal, self._views = ring, journal, views
        self.run_file_error: OSError | None = None
        self._in_ring: str | None = None
        self._is_reported = False
        self._seen: set[str] = set()

    def run_file_fails(self, error: OSError) -> None:
        """Reports each kind of failure once: a disk that comes and goes must not flood the console."""
        self.run_file_error = error
        self.note()
        trouble = f"{type(error).__name__} {error.errno}"
        if trouble not in self._seen:
            self._seen.add(trouble)
            self._is_reported = True
            self._journal.report("failure", describe(RecordsSink, error))
            self._raise(BEGINS, describe(RecordsSink, error), error)

    def run_file_works(self) -> None:
        """Reports that it works again if its failure was reported."""
        self.run_file_error = None
        if self._is_reported:
            self._is_reported = False
            self._journal.report("note", f"{RecordsSink.name} works again")
            self._raise(ENDS, f"{RecordsSink.name} works again", None)

    def _raise(self, state: str, text: str, error: OSError | None) -> None:
        """The finding; the log says it by an event of its own."""
        evidence = {"error": None if error is None else error.strerror}
        finding = FindingRecord("disk", state, text, evidence=evidence, is_logged=False)
        self._journal.waiting += self._journal.recorded([finding])

    def note(self) -> None:
        """Leaves in the ring what is not written now."""
        views = self._views()
        troubles: dict[str, Exception] = {} if views is None else views.troubles()
        if self.run_file_error is not None:
            troubles = {RecordsSink.name: self.run_file_error} | troubles
        if (trouble := described(troubles)) != self._in_ring:
            self._ring.trouble = self._in_ring = trouble

    def report_view(self, name: str, text: str) -> None:
        """Reports a failure once: views are opened again and again while the run file refuses."""
        self.note()
        if name != "failure" or text not in self._seen:
            self._seen.add(text)
            self._journal.report(name, text)


def _notifier_of(task: WriterTask, journal: Journal) -> Notifier:
    """Only a process of the writer's own starts commands: the measured one is left alone."""
    command = task.options.perf_on_finding
    words = shlex.split(command) if command and task.may_serve else []
    notifier = Notifier(words, str(task.directory), task.anchor)
    if command and not words:
        journal.report("failure", f"--perf-on-finding {command}: it is started by a writer process only")
    journal.tell = notifier.tell
    return notifier


def _reason(end: RingEnd | None) -> str:
    """Why the session ended. A stop that was asked for counts before the reason in the ring, which only tells
    what the stop did to this process: an orderly exit, or an exception because another rank went first.
    """
    if stop_note.is_left(os.environ):
        return STOPPED
    return end.reason if end else KILLED
