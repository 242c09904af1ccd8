"""The live log: one file for all sessions of a directory, made for `tail -f`."""

from __future__ import annotations

from typing import ClassVar

from flagscale_perf.sinks.base import FileSink, SinkContext
from flagscale_perf.sinks.text_format import TextFormat
from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.files import AppendFile, open_shared
from flagscale_perf.spine.records import Record
from flagscale_perf.spine.session import REALTIME_FILE

MAX_BYTES = 8 << 20
FOLLOWER_TIME_NS = NS_PER_S // 4  # what a follower gets for reading the last lines before they are cut off


class RealtimeSink(FileSink):
    """`perf_realtime.log`; shared with other sessions' writers, emptied in place when it gets too long."""

    name: ClassVar[str] = "live log"
    cost: ClassVar[str] = "nothing new in perf_realtime.log; the session's own log goes on"
    file: ClassVar[str] = "realtime"

    def __init__(self, context: SinkContext, max_bytes: int = MAX_BYTES) -> None:
        self._format = TextFormat(context)
        self._max_bytes = max_bytes
        self._last_write_ns = 0
        self._file = AppendFile(context.directory / REALTIME_FILE, open_shared, self._preamble)

    def write(self, record: Record) -> None:
        """Keeps the record's line, if it has one."""
        if line := self._format.line(record):
            self._file.write(line.encode())

    def flush(self) -> None:
        """Brings the lines to the file. Raises OSError."""
        if not self._file.waiting_bytes:
            self._file.flush()
            return
        is_full = self._file.size() + self._file.waiting_bytes > self._max_bytes
        if is_full and monotonic_ns() - self._last_write_ns >= FOLLOWER_TIME_NS:
            self._file.truncate()
        self._file.flush()
        self._last_write_ns = monotonic_ns()

    def _preamble(self, fresh: bool) -> bytes:
        return (("" if fresh else self._format.separator()) + self._format.heading()).encode()
