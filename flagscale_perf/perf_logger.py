"""Rank 0's way from records to files: a ring in the training process, a writer process behind it.

    training thread --step(), event()--> ring (shared memory) --> writer process --> files
                                                                        |
    side thread of the trainer  <---- lines for the console, troubles --+

Run as a module, this file is the writer process.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import asdict

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.errors import traceback_lines
from flagscale_perf.spine.records import EventRecord
from flagscale_perf.spine.ring import Ring
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.pipeline import make_pipeline
from flagscale_perf.training.ranks.blocks import RankIdentity
from flagscale_perf.training.ranks.identity import content_of
from flagscale_perf.training.records import MarksRecord, StepRecord
from flagscale_perf.writer.console import Console, complain
from flagscale_perf.writer.process import serve
from flagscale_perf.writer.supervisor import Supervisor
from flagscale_perf.writer.task import WriterTask

WRITER = "flagscale_perf.perf_logger"


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
        cls,
        config: PerfConfig,
        facts: RunFacts,
        say: Callable[[str], None],
        identity: RankIdentity | None = None,
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
            owner = None if identity is None else content_of(identity)
            task = WriterTask.of(config.as_dict(), asdict(facts), config.perf_log_dir, owner)
            supervisor = Supervisor(ring, task, WRITER, make_pipeline, Console(say, config.perf_debug))
            supervisor.start()
        except Exception as error:  # out of memory or threads: no files, but the training goes on
            complain(
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

if __name__ == "__main__":
    serve(make_pipeline)
