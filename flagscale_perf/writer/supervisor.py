"""Keeps a writer running, from within the measured process.

If a writer process dies, the next one continues where it stopped; where no process can be started, a thread
of the measured process does the same work.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import threading
import time
from subprocess import PIPE, STDOUT

from flagscale_perf.spine import companion
from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.companion import PATIENCE_S
from flagscale_perf.spine.errors import traceback_lines
from flagscale_perf.spine.ring import Ring
from flagscale_perf.writer.console import Console, complain
from flagscale_perf.writer.drain import FINISH_LIMIT_S, RESCUED, Drain
from flagscale_perf.writer.instrument import MakeInstrument
from flagscale_perf.writer.journal import STILL_S, RunDelay
from flagscale_perf.writer.losses import Outcome
from flagscale_perf.writer.messages import Asked, Stray, messages_of
from flagscale_perf.writer.task import WriterTask

MAX_WRITERS = 3  # processes one run may use up


class Supervisor:
    """A daemon thread, asleep unless the writer sends something."""

    def __init__(
        self, ring: Ring, task: WriterTask, module: str, make_instrument: MakeInstrument, console: Console
    ) -> None:
        """`module` is run as the writer process; it calls `process.serve` with `make_instrument`."""
        self._ring = ring
        self._task = task
        self._module = module
        self._make_instrument = make_instrument
        self._console = console
        self._ending = threading.Event()
        self._lock = threading.Lock()  # of `_writer`
        self._writer: subprocess.Popen[bytes] | None = None
        self._summary: str | None = None
        self._outcome: Outcome | None = None
        self._why = ""  # records may wait for ever, once that has been reported
        self._thread = threading.Thread(target=self._run, name="flagscale_perf", daemon=True)

    def start(self) -> None:
        """Starts the thread. Raises RuntimeError where there can be none."""
        self._thread.start()

    def end(self) -> None:
        """Wakes the writer after the ring was closed."""
        self._ending.set()
        self._wake()

    def wait(self, timeout_s: float) -> str | None:
        """Waits for the writer's end. Returns the summary's path; None if it is not there in time."""
        before, began_ns, delay = self._beats(), monotonic_ns(), self._delay()
        self._thread.join(timeout_s)
        if not self._thread.is_alive():
            return self._release() or None
        if before and self._beats() == before:
            self._report_hang(
                f"records that it has not written {PATIENCE_S:.0f} s after the training are saved to"
                f" {tempfile.gettempdir()}/{RESCUED}*; `flagscale-perf report` shows what is in which",
                delay.is_most_of(monotonic_ns() - began_ns),
            )
        return None

    def losses(self) -> str:
        """What is missing from the session's files, see `Outcome.losses`; "" while it is on its way."""
        if self._outcome is None:
            with contextlib.suppress(ValueError):  # the thread has just given the ring back
                return Outcome.of(self._ring).losses(self._task.directory, self._why)
        return "" if self._outcome is None else self._outcome.losses(self._task.directory, self._why)

    def _beats(self) -> int:
        with contextlib.suppress(ValueError):  # the thread has just given the ring back
            return self._ring.beats
        return 0

    def _delay(self) -> RunDelay:
        """Of the writer process, or of the thread that does its work."""
        with self._lock:
            return RunDelay(str(self._thread.native_id if self._writer is None else self._writer.pid))

    def _report_hang(self, cost: str, is_starved: bool) -> None:
        if not self._why:
            with self._lock:
                who = "" if self._writer is None else f", or process {self._writer.pid} was stopped"
            why = f"the disk of {self._task.directory} does not answer{who}"
            self._why = f"the writer is blocked: {'others take its CPU' if is_starved else why}"
            complain(f"flagscale_perf: {self._why}; {cost}")

    def _release(self) -> str:
        """Gives the ring back, on either thread, as the process may not wait; returns its summary."""
        if self._summary is None:
            self._summary = self._ring.summary or ""
            self._outcome = Outcome.of(self._ring)
            self._ring.release()
        return self._summary

    def _run(self) -> None:
        try:
            writers = 1
            while self._run_process() and writers < MAX_WRITERS:
                writers += 1
            if self._ring.summary is None:
                self._run_here()
        except Exception as error:  # whatever it is, it must not reach the host as a traceback of a thread
            self._why = f"recording has ended: {type(error).__name__}: {error}"
            complain(f"flagscale_perf: {self._why}", *traceback_lines(self._task.options.perf_debug))
        if self._ending.is_set():
            self._release()

    def _run_process(self) -> bool:
        """One writer process from start to end. True if it died and another one may do better."""
        fd = self._ring.fd
        if fd is None:
            self._note("no shared memory for a writer process")
            return False
        last_words = ""
        try:
            with self._task.handed_over(fd) as task_fd:
                writer = companion.start(
                    self._module, str(task_fd), pass_fds=(fd, task_fd), stdin=PIPE, stdout=PIPE, stderr=STDOUT
                )
            with writer:
                try:
                    self._set_writer(writer)
                    if self._ending.is_set():
                        self._wake()
                    last_words = self._follow(writer)
                finally:
                    self._set_writer(None)  # before its pipes are closed
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._note(f"no writer process: {type(error).__name__}: {error}")
            return False
        if self._ring.summary is None:
            end = f"writer process {writer.pid} ended with code {writer.returncode}"
            self._note(f"{end}: {last_words}" if last_words else end)
        return self._ring.summary is None

    def _follow(self, writer: subprocess.Popen[bytes]) -> str:
        """Shows what the writer sends until its end; returns the last stray line, such as a traceback's."""
        watcher, last_words = Watcher(self._ring, writer.pid), ""

        def look() -> None:
            if watcher.stands_still():
                self._report_hang(
                    f"training goes on; {self._ring.slots} records have room in memory, further ones are "
                    "dropped and counted",
                    watcher.is_starved(),
                )

        for message in messages_of(writer, look):
            if isinstance(message, Asked):
                self._ring.reply(message.question)
                continue
            self._console.show(message)
            if isinstance(message, Stray):
                last_words = message.text or last_words
        return last_words

    def _note(self, trouble: str) -> None:
        """Prints it now and lets the next writer record it."""
        self._task.notes.append(trouble)
        complain(f"flagscale_perf: {trouble}")

    def _set_writer(self, writer: subprocess.Popen[bytes] | None) -> None:
        with self._lock:
            self._writer = writer

    def _wake(self) -> None:
        with self._lock:  # so that the descriptor is still the writer's
            if self._writer is not None and self._writer.stdin is not None:
                with contextlib.suppress(BrokenPipeError):  # it has died; `_run` starts another one
                    self._writer.stdin.write(b"\n")

    def _run_here(self) -> None:
        instrument = self._make_instrument(self._task, None)
        drain = Drain(self._ring, self._task, instrument, self._console.show)
        drain.patience_s = FINISH_LIMIT_S  # it does not outlive this process
        drain.run(self._pause, lambda: False)

    def _pause(self, seconds: float) -> None:
        if self._ending.is_set():
            time.sleep(seconds)
        else:
            self._ending.wait(seconds)


class Watcher:
    """The trainer's side, of one writer from its start on; looks once a second."""

    def __init__(self, ring: Ring, pid: int) -> None:
        """`pid`: the writer's."""
        self._ring, self._pid = ring, pid
        self._first = self._beats = ring.beats
        self._still = 0
        self._delay = RunDelay(str(pid))

    def stands_still(self) -> bool:
        """Whether it has begun and had no beat for so long. Looks are counted and not the time, as the
        trainer may be stopped, too.
        """
        before, self._beats = self._beats, self._ring.beats
        self._still = self._still + 1 if self._beats == before != self._first else 0
        if self._still <= 1:
            self._delay = RunDelay(str(self._pid))
        return self._still >= STILL_S

    def is_starved(self) -> bool:
        """Whether it waits for a CPU rather than for anything else, since it has no beat."""
        return self._delay.is_most_of(self._still * NS_PER_S)
