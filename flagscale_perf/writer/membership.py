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
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from flagscale_perf.spine import companion
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.peers import handover
from flagscale_perf.spine.peers.handover import Door
from flagscale_perf.spine.peers.member import Member, job_key
from flagscale_perf.spine.records import Record
from flagscale_perf.spine.ring import Ring
from flagscale_perf.writer.console import Console, complain
from flagscale_perf.writer.losses import Outcome
from flagscale_perf.writer.messages import Finished, decode
from flagscale_perf.writer.task import WriterTask

SLOTS = 8192  # 2 MiB: more than a second of what one interpreter can do
MAX_WRITERS = 3  # that one process starts
START_WAIT_S = 5.0  # how long the first process waits at its end until the writer's program runs
END_WAIT_S = 5.0  # how long an orderly end waits for the ring to be in other hands
STDOUT_WAIT_S = 2.0
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
        """What its processes have in common."""
        return job_key(self.instrument, str(self.directory), self.name)


class Membership:
    """Use `join`. Nothing here raises."""

    def __init__(self, job: Job, title: str) -> None:
        """Use `join`."""
        self._job = job
        self._title = title
        self._key = job.key
        self._pid = os.getpid()
        self._start_ns = monotonic_ns()
        self._pending: deque[Record] = deque()
        self._storing = threading.Lock()
        self._ring: Ring | None = None  # where `put` puts
        self._memory: Ring | None = None  # the same from the beginning on
        self._lost = _Lost()
        self._put: Callable[[Record], None] = self._put_in_turn
        self._has_entered = self._is_over = False
        self._connection: socket.socket | None = None
        self._door: Door | None = None
        self._is_met, self._is_started = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._writers = self._meetings = 0

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
        self._put(record)

    def _put_in_turn(self, record: Record) -> None:
        """Whoever finds the ring free stores for all: a lock that is waited for could be held by the very
        thread that is interrupted here.
        """
        pending = self._pending
        pending.append(record)
        while pending and self._storing.acquire(False):
            try:
                ring = self._ring or self._arm()
                while pending:
                    ring.put(pending.popleft())
                if ring.is_atomic:
                    self._put = ring.put
            finally:
                self._storing.release()

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
        memory = self._memory
        deadline = time.monotonic() + wait_s
        while memory is not None and not self._is_over:
            room = memory.slots - (memory.stored - memory.saved)
            if room or time.monotonic() >= deadline:
                return room
            time.sleep(ROOM_RETRY_S)
        return 0

    @property
    def dropped(self) -> int:
        """Records that are lost, as there was no room, or no ring."""
        return self._lost.count + (0 if self._memory is None else self._memory.dropped)

    def end(self, reason: str) -> None:
        """No more records follow; what was put is in the writer's hands when this returns."""
        memory, is_over = self._memory, self._is_over
        self._is_over = True
        atexit.unregister(self.end)
        if memory is None or is_over:
            return
        if self._storing.acquire(timeout=END_WAIT_S):
            self._ring, self._put = None, self._lost.put
            while self._pending:
                memory.put(self._pending.popleft())
            memory.close(reason, monotonic_ns())
            self._storing.release()
        if not self._is_met.wait(END_WAIT_S):
            complain(
                f"flagscale_perf: {memory.stored} records of process {self._pid} are lost: no writer came"
            )
        elif self._door is not None and not self._is_started.wait(START_WAIT_S):
            complain(f"flagscale_perf: records of process {self._pid} may be lost: its writer has not begun")
        elif self._job.to_stdout and self._thread is not None:
            self._thread.join(STDOUT_WAIT_S)
        if memory.trouble:  # there may be nobody left to say it once there is room, or never will be
            missing = Outcome.of(memory).losses(self._job.directory, "")
            complain(f"flagscale_perf: process {self._pid}: {missing}")

    def _abandon(self) -> None:
        """In a forked child: ring and connection stay the parent's; the first `put` joins anew."""
        for held in (self._connection, self._door):
            if held is not None:
                held.close()
        was_over = self._is_over
        self.__init__(self._job, self._title)  # type: ignore[misc]
        self._is_over = was_over

    def _enter(self) -> None:
        """A ring, and a writer that has it."""
        self._has_entered = True
        try:
            self._memory = Ring.create(
                self._job.slots, Member(self._key, f"{self._pid}-{self._start_ns}").ring_name
            )
            if self._memory.fd is None:
                raise OSError("there is no shared memory")
            self._name(self._title)
            self._meet()
            self._thread = threading.Thread(
                target=self._run, name=f"flagscale_perf {self._job.instrument}", daemon=True
            )
            self._thread.start()
        except Exception as error:  # whatever it is: nothing is kept, and the program goes on
            self._memory = None
            self._complain(f"nothing is recorded: {_words(error)}")

    def _arm(self) -> Ring | _Lost:
        """Before the first record: by now a Ray worker knows which actor it is."""
        if not self._has_entered and not self._is_over:
            self._enter()
        if self._memory is None or self._is_over:
            return self._lost
        self._name(ray_actor() or self._title)
        self._ring = self._memory
        return self._ring

    def _name(self, title: str) -> None:
        if self._memory is not None:
            self._memory.producer = dump([title, self._start_ns])

    def _meet(self) -> None:
        """Gives the ring to the writer, or to one that is to be started. Raises OSError."""
        assert self._memory is not None and self._memory.fd is not None
        self._meetings += 1
        if self._meetings > MAX_MEETINGS:
            raise OSError(
                f"{MAX_MEETINGS} times a writer let go of its records; is another version of flagscale_perf"
                " writing for this job?"
            )
        for _ in range(MEET_TRIES):
            connection = handover.connect(self._key)
            if connection is None and self._door is None and self._writers < MAX_WRITERS:
                self._door = Door.open(self._key)
                connection = None if self._door is None else handover.connect(self._key)
            if connection is not None:
                handover.give(connection, self._memory.fd, [self._pid])
                connection.setblocking(True)
                self._connection = connection
                self._is_met.set()
                return
            time.sleep(RETRY_S)  # another process is about to open the door
        raise OSError(f"no writer is to be found for {self._job.directory}")

    def _run(self) -> None:
        """The side thread: asleep unless the writer says something or is gone."""
        try:
            while True:
                if self._door is not None:
                    self._start_writer(self._door)
                if self._connection is None or self._listen(self._connection):
                    break
                self._connection.close()
                self._meet()
        except Exception as error:  # whatever it is, it must not reach the program as a traceback
            self._complain(f"nothing more is recorded: {_words(error)}")
        finally:
            self._is_started.set()
            if self._connection is not None:
                self._connection.close()

    def _start_writer(self, door: Door) -> None:
        """Raises OSError and subprocess.SubprocessError."""
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

    def _listen(self, connection: socket.socket) -> bool:
        """Prints what the writer sends; whether it is through with this process."""
        with contextlib.suppress(OSError), connection.makefile("rb") as lines:
            for line in lines:
                message = decode(line.rstrip(b"\n"))
                if isinstance(message, Finished):
                    return True
                _console.show(message)
        return False

    def _complain(self, text: str) -> None:
        complain(f"flagscale_perf {self._job.instrument}: {text} in process {self._pid}")


class _Lost:
    """Stands for a ring where there is none.

    Attributes:
        count: of records.
        is_atomic: as of a ring.
    """

    is_atomic = True

    def __init__(self) -> None:
        self.count = 0

    def put(self, record: Record) -> None:
        """Counts it."""
        self.count += 1


def ray_actor() -> str | None:
    """The class of the Ray actor that this process is; None for any other."""
    if "ray" not in sys.modules:
        return None
    with contextlib.suppress(OSError), open("/proc/self/cmdline", encoding="utf-8", errors="replace") as file:
        kind, _, title = file.read().partition("::")
        if kind == "ray":
            return title.partition("\0")[0].partition(".")[0].strip() or None
    return None


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


_console = Console(partial(print, flush=True), debug=False)
_live: weakref.WeakSet[Membership] = weakref.WeakSet()


def _abandon_all() -> None:
    for membership in list(_live):
        membership._abandon()


os.register_at_fork(after_in_child=_abandon_all)
