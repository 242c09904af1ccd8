"""Another training that lives and writes into the same directory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.files import is_locked, open_regular
from flagscale_perf.spine.measured import trainer_lives
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.spine.session import REALTIME_FILE, read_header, session_of
from flagscale_perf.writer.retention import LEADER

# Seconds after the session's start. A training whose process cannot be seen from here is known by its file,
# which grows at least once a minute, and after a kill for some seconds only.
LOOKS_S = (0, 60, 210)


class Neighbours:
    """Looks at a few moments for trainings that began before this one and still write."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._begun_ns = directory, monotonic_ns()
        self._looks = list(LOOKS_S)
        self._sizes: dict[str, int] = {}  # by session, of those that cannot be seen, at the look before

    def look(self, own: RunHeader) -> str | None:
        """One line on the first that is found; `own`: the header of this session."""
        if not self._looks or monotonic_ns() - self._begun_ns < self._looks[0] * NS_PER_S:
            return None
        is_last = len(self._looks) == 1
        del self._looks[0]
        if own.instrument != LEADER:  # others record beside a training, several in one directory
            return None
        with contextlib.suppress(OSError):
            for other in self._others(own, is_last):
                self._looks.clear()
                return (
                    f"another training writes into {self._directory}, too: session {other.session_id},"
                    f" process {other.pid} on {other.host}; their run files stay apart, {REALTIME_FILE} has"
                    " lines of both: give each a --perf-log-dir of its own"
                )
        return None

    def _others(self, own: RunHeader, is_last: bool) -> Iterator[RunHeader]:
        """Raises OSError."""
        for name in sorted(filter(session_of, os.listdir(self._directory))):
            with contextlib.suppress(OSError, ValueError, RecursionError):  # of another program, or removed
                fd = open_regular(self._directory / name)
                try:
                    found, locked = os.fstat(fd), is_locked(fd)
                finally:
                    os.close(fd)
                header = read_header(self._directory / name, (found.st_dev, found.st_ino))
                is_other = header.instrument == LEADER and _process(header) != _process(own)
                if not is_other or header.start_wall_ns >= own.start_wall_ns:
                    continue
                lives = trainer_lives(header, locked)
                before = self._sizes.get(header.session_id, found.st_size)
                self._sizes[header.session_id] = found.st_size
                if (lives and locked) or (lives is not False and is_last and found.st_size > before):
                    yield header


def _process(header: RunHeader) -> tuple[str | None, int | None, int | None]:
    return header.host, header.pid_namespace, header.pid
