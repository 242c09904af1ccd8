"""The side of a session that measures: records go into the ring, and a writer behind it makes them files.

measuring thread --put(), event()--> ring (shared memory) --> writer process --> files
                                                                    |
side thread of the process  <-- lines for the console, failures ----+
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from flagscale_perf.spine.errors import traceback_lines
from flagscale_perf.spine.ring import Producer, Ring
from flagscale_perf.writer.console import Console, complain
from flagscale_perf.writer.instrument import MakeInstrument
from flagscale_perf.writer.losses import say_at_exit
from flagscale_perf.writer.supervisor import Supervisor
from flagscale_perf.writer.task import WriterTask


class Writing(NamedTuple):
    """What writes an instrument's records.

    Attributes:
        module: run as the writer process; it calls `process.serve` with `make_instrument`.
        make_instrument: the same for a thread of this process, where no process can be started.
    """

    module: str
    make_instrument: MakeInstrument


OwnT = TypeVar("OwnT", bound="Recorder")


class Recorder(Producer):
    """One session, in the process that is measured; nothing here raises."""

    def __init__(self, ring: Ring | None, supervisor: Supervisor | None) -> None:
        """Use `begin` instead."""
        super().__init__(ring)
        self._supervisor = supervisor
        self._summary: str | None = None

    @classmethod
    def begin(
        cls: type[OwnT],
        writing: Writing,
        make_task: Callable[[], WriterTask],
        say: Callable[[str], None],
        debug: bool,
    ) -> OwnT:
        """Begins a session and returns at once; the files appear a moment later.

        What fails here is printed and costs the files, not the program.

        Args:
            writing: who makes the files.
            make_task: what is to be written.
            say: prints one line on the program's console; called on a side thread.
            debug: print tracebacks, too.
        """
        ring: Ring | None = None
        try:
            ring = Ring.create()
            console = Console(say, debug)
            supervisor = Supervisor(ring, make_task(), writing.module, writing.make_instrument, console)
            supervisor.start()
        except Exception as error:  # out of memory or threads: no files, but the program goes on
            why = f"{type(error).__name__}: {error}"
            complain(f"flagscale_perf: nothing is recorded: {why}", *traceback_lines(debug))
            say_at_exit(lambda: f"nothing was recorded: {why}")
            if ring is not None:
                ring.release()
            return cls(None, None)
        return cls(ring, supervisor)

    def end(self, reason: str) -> None:
        """Ends the session for `reason` (see `RunEnd`) and waits for nothing; `close` may follow. In a forked
        child it does nothing.
        """
        if self._close(reason) is not None and self._supervisor is not None:
            self._supervisor.end()

    def close(self, reason: str, timeout_s: float = 2.0) -> str | None:
        """Ends the session unless `end` has, and waits for its files, at most `timeout_s`. What is missing
        from them then, and at the end of the program still is, the program's last line says.

        Returns the summary's path; None if it is not there in time (the writer goes on without us). Calling
        it again returns the same; in a forked child it does nothing.
        """
        self.end(reason)
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            self._summary = supervisor.wait(timeout_s)
            if self._summary is None or supervisor.losses():
                say_at_exit(supervisor.losses)
        return self._summary

    def _abandon(self) -> None:
        super()._abandon()
        self._supervisor = None
