"""This process among those of its job on this machine: its ring, and the writer that drains it.

recorded threads --put()--> ring (shared memory), handed over to --> the job's writer process --> files
                                                                          |
side thread of this process  <-- lines for stdout, failures --------------+

The first process of the job starts the writer, which is nobody's child. Should the writer be killed, the
connections to it end, and one of the processes starts the next one, which finds everything in the rings.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from flagscale_perf.spine import companion
from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.peers.handover import Door, Visit, job_key
from flagscale_perf.spine.records import Record
from flagscale_perf.spine.ring import Ring
from flagscale_perf.spine.units import print_line
from flagscale_perf.writer.console import Console, complain
from flagscale_perf.writer.losses import Outcome
from flagscale_perf.writer.messages import Finished, decode
from flagscale_perf.writer.task import WriterTask

SLOTS = 8192  # 2 MiB: more than a second of what one interpreter can do
MAX_WRITERS = 3  # that one process starts
START_WAIT_S = 5.0  # how long the first process waits at its end until the writer's program runs
END_WAIT_S = 5.0  # how long an orderly end waits for the ring to be in other hands
STDOUT_WAIT_S = 10.0  # how long it then waits for its lines, where they go to its stdout
MEET_TRIES, RETRY_S = 10, 0.02
ROOM_WAIT_S, ROOM_RETRY_S = 30.0, 0.005  # how long a writer may take nothing, for who waits for room
MAX_MEETINGS = 10  # of one process with writers: one that lets go of every ring would be met without end


@dataclass(frozen=True)
class Job:
    """Processes whose records go into one run file a machine.

    Attributes:
        instrument: whose records these are.
        writer: module that is run to write them; it calls `writer.process.serve_job`.
        directory: of the run file, absolute.
        name: what tells jobs with one directory apart; may be empty.
        make_task: what the writer is to do; asked where one is started. May raise PerfError.
        to_stdout: what the writer says of a process is printed by it.
        slots: how many records a process's ring holds.
    """

    instrument: str
    writer: str
    directory: Path
    name: str
    make_task: Callable[[], WriterTask]
    to_stdout: bool = False
    slots: int = SLOTS

    @property
    def key(self) -> str:
        """Identifies the job: all its processes have the same key."""
        return job_key(self.instrument, str(self.directory), self.name)


class Membership:
    """Use `join`. Nothing here raises."""

    def __init__(self, job: Job, title: str) -> None:
        """Use `join` instead."""
        self._job = job
        self._title = title
        self._is_over = False
        self._visit: _WriterVisit | None = None
        self._store = _Store(self._ring)

    @classmethod
    def join(cls, job: Job, title: str) -> Membership:
        """Returns at once. The job's first process starts the writer meanwhile and waits at its own end until
        that runs; where it is killed before, its records are gone. `title`: what this process is, where it is
        no Ray actor.
        """
        membership = cls(job, title)
        membership._enter()
        _live.add(membership)
        atexit.register(membership.end, "completed")
        return membership

    def put(self, record: Record) -> None:
        """Keeps the record; counts a drop if there is no room. On any thread, also within a signal handler or
        a finaliser: it waits for nobody.
        """
        self._store.put(record)

    def put_all(self, records: Iterable[Record], wait_s: float = ROOM_WAIT_S) -> int:
        """Keeps more records than may have room at once: where there is none, it waits for the writer. For a
        thread that may wait. Once the writer has taken nothing for `wait_s`, what has no room is lost.
        Returns how many are.
        """
        before, room = self.dropped, 0
        for record in records:
            if room <= 0:
                room = self._room(wait_s)
                wait_s = wait_s if room else 0.0
            room -= 1
            self.put(record)
        return self.dropped - before

    def _room(self, wait_s: float) -> int:
        """Free slots, waited for; 0 where none comes."""
        deadline = time.monotonic() + wait_s
        while self._visit is not None and not self._is_over:
            ring = self._visit.ring
            room = ring.slots - (ring.stored - ring.saved)
            if room or time.monotonic() >= deadline:
                return room
            time.sleep(ROOM_RETRY_S)
        return 0

    @property
    def dropped(self) -> int:
        """Records that are lost, as there was no room, or no ring."""
        return self._store.lost + (0 if self._visit is None else self._visit.ring.dropped)

    def end(self, reason: str) -> None:
        """No more records follow; what was put is in the writer's hands when this returns."""
        visit, is_over = self._visit, self._is_over
        self._is_over = True
        atexit.unregister(self.end)
        if visit is not None and not is_over:
            self._store.close(visit.ring, reason)
            visit.wait()

    def _enter(self) -> None:
        """A ring, and a writer that has it."""
        try:
            self._visit = _WriterVisit(self._job, self._title)
        except Exception as error:  # whatever it is: nothing is kept, and the program goes on
            self._store.put = self._store.lose
            _complain(self._job, "nothing is recorded", error)

    def _ring(self) -> Ring | None:
        """The ring, at the first record, when a Ray worker knows its actor; None if nothing is kept."""
        if self._visit is None and not self._is_over:
            self._enter()  # a forked child, which has not joined yet
        if self._visit is None or self._is_over:
            return None
        self._visit.name(ray_actor() or self._title)
        return self._visit.ring

    def _abandon(self) -> None:
        """Called in a forked child: ring and connection stay the parent's; the first `put` joins anew."""
        if self._visit is not None:
            self._visit.leave()
        self._visit = None
        self._store = _Store(self._ring)


class _Store:
    """Puts records into a ring, on any thread.

    Attributes:
        put: keeps a record.
        lost: records that there was no ring for.
    """

    def __init__(self, ring: Callable[[], Ring | None]) -> None:
        """`ring`: asked before the first record; None where nothing is kept."""
        self.put: Callable[[Record], None] = self._put_in_turn
        self.lost = 0
        self._ring = ring
        self._into: Callable[[Record], None] | None = None  # from the first record on
        self._pending: deque[Record] = deque()
        self._turns: dict[None, object] = {}  # whose turn it is to store

    def lose(self, record: Record) -> None:
        """Counts it as dropped."""
        self.lost += 1

    def close(self, ring: Ring, reason: str) -> None:
        """Puts what is pending into the ring, and closes that."""
        own, until_ns = object(), monotonic_ns() + END_WAIT_S * NS_PER_S
        while self._turns.setdefault(None, own) is not own:
            if monotonic_ns() > until_ns:
                return
            time.sleep(RETRY_S)
        try:
            self.put = self._into = self.lose
            while self._pending:
                ring.put(self._pending.popleft())
            ring.close(reason, monotonic_ns())
        finally:
            self._turns.clear()

    def _put_in_turn(self, record: Record) -> None:
        """Whoever finds the ring free stores for all. It is no lock: to wait for one could be to wait for the
        thread that is interrupted here, and a handler that raises before the `try` would leave it taken.
        """
        pending, turns, own = self._pending, self._turns, object()
        pending.append(record)
        while pending:
            try:
                if turns.setdefault(None, own) is not own:
                    return
                put = self._into or self._first()
                while pending:
                    put(pending.popleft())
            finally:
                if turns == {None: own}:  # no call, after which a handler could run
                    turns.clear()

    def _first(self) -> Callable[[Record], None]:
        ring = self._ring()
        self._into = self.lose if ring is None else ring.put
        return self._into


class _WriterVisit(Visit):
    """The ring in the hands of the job's writer, which this starts where there is none."""

    def __init__(self, job: Job, title: str) -> None:
        """Raises OSError, RuntimeError without a thread."""
        super().__init__(job.key, Ring.create(job.slots))
        if self.ring.fd is None:
            raise OSError("there is no shared memory")
        self._job = job
        self._start_ns = monotonic_ns()
        self._door: Door | None = None
        self._is_started = threading.Event()
        self._writers = self._meetings = 0
        self.name(title)
        self._find()
        self._thread = threading.Thread(
            target=self._run, name=f"flagscale_perf {job.instrument}", daemon=True
        )
        self._thread.start()

    def name(self, title: str) -> None:
        """Tells the writer what this process is: its title and start."""
        self.ring.producer = dump([title, self._start_ns])

    def leave(self) -> None:
        """Gives back the ring, the connection and the door, if it is open."""
        super().leave()
        if self._door is not None:
            self._door.close()

    def wait(self) -> None:
        """Waits after the ring's end until a writer has it; prints what is lost."""
        ring = self.ring
        if not self.is_met.wait(END_WAIT_S):
            complain(
                f"flagscale_perf: {ring.stored} records of process {os.getpid()} are lost: no writer came"
            )
        elif self._door is not None and not self._is_started.wait(START_WAIT_S):
            complain(
                f"flagscale_perf: records of process {os.getpid()} may be lost: its writer has not begun"
            )
        elif self._job.to_stdout:
            self._thread.join(STDOUT_WAIT_S)
            if self._thread.is_alive():
                complain(
                    f"flagscale_perf: not all lines of process {os.getpid()} are shown: its writer is slow;"
                    " its log has them"
                )
        if ring.trouble:  # there may be nobody left to say it once there is room, or never will be
            missing = Outcome.of(ring).losses(self._job.directory, "")
            complain(f"flagscale_perf: process {os.getpid()}: {missing}")

    def _find(self) -> None:
        """Gives the ring to the writer, or to one that is to be started. Raises OSError."""
        self._meetings += 1
        if self._meetings > MAX_MEETINGS:
            raise OSError(
                f"{MAX_MEETINGS} times a writer detached; is another version of flagscale_perf"
                " writing for this job?"
            )
        for _ in range(MEET_TRIES):
            if self.meet():
                return
            if self._door is None and self._writers < MAX_WRITERS:
                self._door = Door.open(self._job.key)
                if self._door is not None and self.meet():
                    return
            time.sleep(RETRY_S)  # another process is about to open the door
        raise OSError(f"no writer is to be found for {self._job.directory}")

    def _run(self) -> None:
        """The side thread: asleep unless the writer sends something or is gone."""
        try:
            while True:
                if self._door is not None:
                    self._start_writer(self._door)
                if self._listen():
                    break
                self._find()
        except Exception as error:  # whatever it is, it must not reach the program as a traceback
            _complain(self._job, "nothing more is recorded", error)
        finally:
            self._is_started.set()
            self.leave()

    def _start_writer(self, door: Door) -> None:
        self._writers += 1
        try:
            words = self._job.make_task().encode(door.fd).decode()
            nowhere = subprocess.DEVNULL
            pipes = {"stdin": nowhere, "stdout": nowhere, "stderr": nowhere}
            starter = companion.start(self._job.writer, words, pass_fds=(door.fd,), is_detached=True, **pipes)
            starter.wait()  # gone in milliseconds; the writer goes on as nobody's child
            self._is_started.set()
        finally:
            self._door = None
            door.close()

    def _listen(self) -> bool:
        """Prints what the writer sends; whether it is through with this process."""
        for line in self.lines():
            message = decode(line.rstrip(b"\n"))
            if isinstance(message, Finished):
                return True
            _console.show(message)
        return False


def ray_actor() -> str | None:
    """The class of the Ray actor that this process is; None for any other."""
    if "ray" not in sys.modules:
        return None
    with contextlib.suppress(OSError), open("/proc/self/cmdline", encoding="utf-8", errors="replace") as file:
        kind, _, title = file.read().partition("::")
        if kind == "ray":
            return title.partition("\0")[0].partition(".")[0].strip() or None
    return None


def _complain(job: Job, what: str, error: Exception) -> None:
    why = f"{type(error).__name__}: {error}"
    complain(f"flagscale_perf {job.instrument}: {what}: {why} in process {os.getpid()}")


_console = Console(print_line, debug=False)
_live: weakref.WeakSet[Membership] = weakref.WeakSet()


def _abandon_all() -> None:
    for membership in list(_live):
        membership._abandon()


os.register_at_fork(after_in_child=_abandon_all)
