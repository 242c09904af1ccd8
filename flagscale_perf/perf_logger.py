"""Rank 0's way from records to files: a ring in the training process, a writer process behind it.

    training thread --step(), event()--> ring (shared memory) --> writer process --> files
                                                                        |
    side thread of the trainer  <---- lines for the console, troubles --+

The writer is a fresh interpreter of its own process session. It notices the end of its parent by itself. If
it dies, the next one goes on where it stopped; where no process can be started, the side thread does the same
work.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.device.sampler import Sampler
from flagscale_perf.sinks.wandb import HostRun
from flagscale_perf.spine import companion
from flagscale_perf.spine.clock import Anchor, monotonic_ns
from flagscale_perf.spine.errors import traceback_lines
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.records import EventRecord
from flagscale_perf.spine.ring import Ring
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.ranks.blocks import RankIdentity
from flagscale_perf.training.ranks.gather import Gathering, Job, Trainer, node_of
from flagscale_perf.training.ranks.identity import content_of, identity_of
from flagscale_perf.training.ranks.place import Place
from flagscale_perf.training.records import MarksRecord, StepRecord
from flagscale_perf.writer.drain import Drain, DrainTask
from flagscale_perf.writer.outlet import LOG, TROUBLE, Outlet, lines_of
from flagscale_perf.writer.pulse import Watcher
from flagscale_perf.writer.sources import OneRank, RankSource, Sources, TakeReadings, Unheard, no_readings

WRITER = "flagscale_perf.perf_logger"
MAX_WRITERS = 3  # processes one run may use up

Say = Callable[[str], None]


class PerfLogger:
    """The training side. `step` and `event` are called on the training thread only; nothing here raises or
    blocks it.
    """

    def __init__(self, ring: Ring | None, supervisor: Supervisor | None) -> None:
        """Use `start`."""
        self._ring = ring
        self._supervisor = supervisor
        self._pid = os.getpid()
        self._summary: str | None = None
        _live.add(self)

    @classmethod
    def start(
        cls, config: PerfConfig, facts: RunFacts, say: Say, identity: RankIdentity | None = None
    ) -> PerfLogger:
        """Begins a session and returns at once; the files appear a moment later.

        Args:
            config: the options in force.
            facts: what the host knows about the run.
            say: prints one line on rank 0; called on a side thread.
            identity: rank 0's among others; None where there are none, or nobody knows where.
        """
        ring: Ring | None = None
        try:
            ring = Ring.create()
            supervisor = Supervisor(ring, _task(config, facts, identity), HostRun(say))
            supervisor.start()
        except Exception as error:  # out of memory or threads: no files, but the training goes on
            _complain(
                f"flagscale_perf: nothing is recorded: {type(error).__name__}: {error}",
                *traceback_lines(config.perf_debug),
            )
            if ring is not None:
                ring.release()
            return cls(None, None)
        return cls(ring, supervisor)

    def step(self, record: StepRecord | MarksRecord) -> None:
        """Keeps the record; counts a drop if there is no room."""
        ring = self._ring
        if ring is not None:
            ring.put(record)

    def event(self, name: str, iteration: int, text: str) -> None:
        """Keeps an `EventRecord`; its text may be cut to 200 bytes."""
        ring = self._ring
        if ring is not None:
            ring.put(EventRecord(name, monotonic_ns(), iteration, text))

    def end(self, reason: str) -> None:
        """Ends the session for `reason` (see `RunEnd`) and waits for nothing; `close` may follow. In a forked
        child it does nothing.
        """
        ring, self._ring = self._ring, None
        if ring is not None and self._supervisor is not None and os.getpid() == self._pid:
            ring.close(reason, monotonic_ns())
            self._supervisor.end()

    def close(self, reason: str, timeout_s: float = 2.0) -> str | None:
        """Ends the session unless `end` has, and waits for its files, at most `timeout_s`.

        Returns the summary's path; None if it is not there in time (the writer goes on without us). Calling
        it again returns the same; in a forked child it does nothing.
        """
        self.end(reason)
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None and os.getpid() == self._pid:
            self._summary = supervisor.wait(timeout_s)
        return self._summary

    def _abandon(self) -> None:
        """In a forked child: the session stays the parent's."""
        self._ring = self._supervisor = None


_live: weakref.WeakSet[PerfLogger] = weakref.WeakSet()


def _abandon_all() -> None:
    for logger in list(_live):
        logger._abandon()


os.register_at_fork(after_in_child=_abandon_all)


def _task(config: PerfConfig, facts: RunFacts, identity: RankIdentity | None) -> DrainTask:
    # Through JSON, so that every drain sees the same whatever the host has put into the facts.
    plain = json.loads(dump({"config": config.as_dict(), "facts": asdict(facts)}))
    directory = Path(config.perf_log_dir).absolute()
    return DrainTask(
        plain["config"],
        plain["facts"],
        Anchor.now(),
        directory,
        identity=None if identity is None else content_of(identity),
    )


class Supervisor:
    """A daemon thread of the trainer that keeps a writer running; asleep unless the writer has something to
    say.
    """

    def __init__(self, ring: Ring, task: DrainTask, say: Say) -> None:
        self._ring = ring
        self._task = task
        self._say = say
        self._debug = bool(task.config.get("perf_debug"))
        self._ending = threading.Event()
        self._lock = threading.Lock()  # of `_writer`
        self._writer: subprocess.Popen[bytes] | None = None
        self._summary: str | None = None
        self._is_hang_told = False
        self._thread = threading.Thread(target=self._run, name="flagscale_perf", daemon=True)

    def start(self) -> None:
        """Starts the thread. Raises RuntimeError where there can be none."""
        self._thread.start()

    def end(self) -> None:
        """After the ring is closed: wakes the writer."""
        self._ending.set()
        self._wake()

    def wait(self, timeout_s: float) -> str | None:
        """For the writer's end. The summary's path; None if it takes longer, or could not be written."""
        before = self._beats()
        self._thread.join(timeout_s)
        if not self._thread.is_alive():
            return self._release() or None
        if before and self._beats() == before:
            self._say_hung(
                "what is not written 5 s after the training is lost; `flagscale-perf report` shows what is there"
            )
        return None

    def _beats(self) -> int:
        with contextlib.suppress(ValueError):  # the thread has just given the ring back
            return self._ring.beats
        return 0

    def _say_hung(self, cost: str) -> None:
        """Once a session."""
        if not self._is_hang_told:
            self._is_hang_told = True
            with self._lock:
                who = "" if self._writer is None else f", or process {self._writer.pid} was stopped"
            _complain(
                f"flagscale_perf: the writer stands still: the disk of {self._task.directory} does not answer{who}; {cost}"
            )

    def _release(self) -> str:
        """Gives the ring back; by the thread, too, as nobody may wait for it before the process ends. Returns
        its summary.
        """
        if self._summary is None:
            self._summary = self._ring.summary or ""
            self._ring.release()
        return self._summary

    def _run(self) -> None:
        try:
            writers = 1
            while self._run_process() and writers < MAX_WRITERS:
                writers += 1
            if self._ring.summary is None:
                self._run_here()
        except Exception as error:
            _complain(
                f"flagscale_perf: recording has ended: {type(error).__name__}: {error}",
                *traceback_lines(self._debug),
            )
        if self._ending.is_set():
            self._release()

    def _run_process(self) -> bool:
        """One writer process from start to end. True if it died and another one may do better."""
        fd = self._ring.fd
        if fd is None:
            self._note("no shared memory for a writer process")
            return False
        last, watcher = "", Watcher(self._ring)

        def look() -> None:
            if watcher.stands_still():
                self._say_hung(
                    f"training goes on; {self._ring.slots} records have room in memory, what comes beyond is lost and counted"
                )

        try:
            with companion.start(WRITER, pass_fds=(fd,), stdin=PIPE, stdout=PIPE, stderr=STDOUT) as writer:
                try:
                    self._brief(writer)
                    for line in lines_of(writer, look):
                        last = self._heard(line) or last
                finally:
                    self._set_writer(None)  # before its pipes are closed
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._note(f"no writer process: {type(error).__name__}: {error}")
            return False
        if self._ring.summary is None:
            self._note(
                f"writer process {writer.pid} ended with code {writer.returncode}{': ' if last else ''}{last}"
            )
        return self._ring.summary is None

    def _note(self, trouble: str) -> None:
        """Says it now and lets the next drain record it."""
        self._task.notes.append(trouble)
        _complain(f"flagscale_perf: {trouble}")

    def _brief(self, writer: subprocess.Popen[bytes]) -> None:
        if writer.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it has died; its last words tell why
                writer.stdin.write((dump(_bootstrap(self._ring, self._task)) + "\n").encode())
        self._set_writer(writer)
        if self._ending.is_set():
            self._wake()

    def _set_writer(self, writer: subprocess.Popen[bytes] | None) -> None:
        with self._lock:
            self._writer = writer

    def _wake(self) -> None:
        with self._lock:  # so that the descriptor is still the writer's
            if self._writer is not None and self._writer.stdin is not None:
                with contextlib.suppress(BrokenPipeError):  # it has died; `_run` sees to it
                    self._writer.stdin.write(b"\n")

    def _heard(self, line: str) -> str:
        """Acts on a line of the writer; returns it if the writer did not mean to say it (a traceback's)."""
        if line.startswith(LOG):
            self._print(line.removeprefix(LOG))
        elif line.startswith(TROUBLE) or self._debug:  # with --perf-debug lines of a traceback, too
            _complain(line.removeprefix(TROUBLE))
        else:
            return line
        return ""

    def _print(self, line: str) -> None:
        try:
            self._say(line)
        except Exception as error:  # the host's printing is not ours to trust
            self._say = _ignore
            _complain(
                f"flagscale_perf: console: {type(error).__name__}: {error}; no more lines on it",
                *traceback_lines(self._debug),
            )

    def _run_here(self) -> None:
        """The writer's work on this thread."""
        has_device = self._task.facts.get("device_uuid") is not None
        readings = (
            _nothing_but("no hardware counters: they are read in a writer process only")
            if has_device
            else no_readings
        )
        ranks = (
            Unheard("nothing is recorded of other ranks: they are read in a writer process only")
            if self._task.identity
            else OneRank()
        )
        Drain(self._ring, self._task, self._print, _complain, Sources(readings, ranks)).run(
            self._pause, lambda: False
        )

    def _pause(self, seconds: float) -> None:
        if self._ending.is_set():
            time.sleep(seconds)
        else:
            self._ending.wait(seconds)


def _bootstrap(ring: Ring, task: DrainTask) -> dict[str, Any]:
    return asdict(task) | {"directory": str(task.directory), "ring_fd": ring.fd, "parent_pid": os.getpid()}


def _complain(*lines: str) -> None:
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # a closed stderr is no reason to end a training
            print("\n".join(lines), file=sys.stderr, flush=True)


def _ignore(line: str) -> None:
    """Prints nothing."""


def _readings(device_uuid: str | None, replaces: bool) -> TakeReadings:
    """The device's counters, read in this process. Not after a writer has died: its end may have been the
    driver's doing.
    """
    if device_uuid is None:
        return no_readings
    if replaces:
        return _nothing_but(
            "no hardware counters any more: the writer process before this one has died, perhaps by the driver"
        )
    sampler = Sampler(device_uuid)
    sampler.start()
    return sampler.take


def _nothing_but(note: str) -> TakeReadings:
    notes = [note]
    return lambda: ([], [notes.pop()] if notes else [])


def _ranks(task: DrainTask, trainer: Trainer, alarm: companion.Alarm) -> RankSource:
    """The other ranks, where the launcher's environment says where they are."""
    place = Place.of(os.environ)
    if place is None or task.identity is None:
        return OneRank()
    node = node_of(place, trainer, alarm.watch, reads_devices=not task.notes)
    job = Job(place, identity_of(task.identity), task.facts, task.directory)
    return Gathering(job, node, trainer.is_alive)


def main() -> None:
    """The writer process: reads its task from stdin, drains the ring until the trainer has closed it or is
    gone.
    """
    companion.settle()
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        task = json.loads(stdin.readline())
    parent_pid: int = task.pop("parent_pid")

    def is_orphan() -> bool:
        return os.getppid() != parent_pid

    ring = Ring.attach(task.pop("ring_fd"))
    companion.end_after_parent(is_orphan, lambda: ring.saved)
    outlet, alarm = Outlet(1), companion.Alarm(0)
    task |= {"anchor": Anchor(**task["anchor"]), "directory": Path(task["directory"]), "may_serve": True}
    drain_task = DrainTask(**task)
    trainer = Trainer(parent_pid, drain_task.anchor.mono_ns, lambda: not is_orphan())
    ranks = _ranks(drain_task, trainer, alarm)
    sources = Sources(_readings(drain_task.facts.get("device_uuid"), bool(drain_task.notes)), ranks)

    def wait(seconds: float) -> None:
        outlet.push()
        alarm.wait(seconds)

    Drain(ring, drain_task, outlet.log, outlet.trouble, sources).run(wait, is_orphan)
    outlet.finish()


if __name__ == "__main__":
    main()
