"""Says what is missing from a session's files, in the last line that such a run prints."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flagscale_perf.spine.ring import Ring
from flagscale_perf.spine.session import file_names
from flagscale_perf.writer.console import complain

OVERFLOW = "records came faster than the disk took them"


@dataclass(frozen=True)
class Outcome:
    """How far a session has come, by its ring.

    Attributes:
        session: its id; None if no file of it could be made.
        saved: records that are in the run file.
        waiting: records that are in the ring and not in the run file.
        dropped: records that had no room in the ring.
        trouble: what cannot be written now, and why; "" if there is nothing.
        is_over: the writer has done what it could.
    """

    session: str | None
    saved: int
    waiting: int
    dropped: int
    trouble: str
    is_over: bool

    @classmethod
    def of(cls, ring: Ring) -> Outcome:
        """The outcome so far, read from the producer's side of the ring."""
        saved = ring.saved
        waiting, is_over = ring.stored - saved, ring.summary is not None
        return cls(ring.session, saved, waiting, ring.dropped, ring.trouble, is_over)

    def losses(self, directory: Path, otherwise: str) -> str:
        """One line: how much is missing, why, and where the rest is; "" if nothing is.

        `otherwise`: why records wait where nothing is known to be in trouble; "" if they are on their way.
        """
        why = self.trouble or otherwise or (OVERFLOW if self.dropped else "")
        if not why:
            return ""
        if self.session is None or not self.saved:
            if not self.is_over:
                return f"nothing is recorded yet in {directory}: {why}"
            return f"nothing was recorded in {directory}: {why}; give a --perf-log-dir that can be written"
        missing = self.waiting + self.dropped
        run_file = directory / file_names(self.session)["records"]
        if missing:
            are = "are missing from" if self.is_over else "are not yet in"
            return f"{missing} of {self.saved + missing} records {are} {run_file}: {why}"
        if self.trouble:
            return f"not everything was written: {why}; all {self.saved} records are in {run_file}"
        return ""


def described(troubles: Mapping[str, Exception]) -> str:
    """What cannot be written, and why: `text log, summary: No space left on device; TensorBoard: ...`."""
    names: dict[str, list[str]] = {}
    for name, error in troubles.items():
        in_system_words = error.strerror if isinstance(error, OSError) else None
        names.setdefault(in_system_words or f"{type(error).__name__}: {error}", []).append(name)
    return "; ".join(f"{', '.join(those)}: {why}" for why, those in names.items())


# Asked at the interpreter's exit, so that what they say comes after everything that the program prints.
_to_ask: list[Callable[[], str]] = []


def say_at_exit(losses: Callable[[], str]) -> None:
    """Prints on stderr what `losses` returns at the end of the program, if that is anything."""
    _to_ask.append(losses)


@atexit.register
def _say() -> None:
    for losses in _to_ask:
        with contextlib.suppress(Exception):  # nothing of ours may show as a traceback at the program's exit
            if line := losses():
                with contextlib.suppress(Exception):  # a closed stdout, or whatever the program has put there
                    sys.stdout.flush()
                complain(f"flagscale_perf: {line}")
    _to_ask.clear()


os.register_at_fork(after_in_child=_to_ask.clear)
