"""The run file: every record, one a line; everything else can be made again from it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from flagscale_perf.sinks.base import FileSink, SinkContext
from flagscale_perf.spine.files import AppendFile, open_locked, open_regular
from flagscale_perf.spine.jsonl import MAX_LINE_BYTES, encode
from flagscale_perf.spine.records import Record, RunHeader
from flagscale_perf.spine.session import file_names


class RecordsSink(FileSink):
    """`perf_records_<session>.jsonl`; locked as long as the session lives."""

    name: ClassVar[str] = "run file"
    cost: ClassVar[str] = "records wait in memory; make room or give another directory"

    def __init__(self, directory: Path, header: RunHeader) -> None:
        """Opens the run file of a session that is claimed already. Raises OSError."""
        path = directory / file_names(header.session_id)["records"]
        # What waits is one batch of the drain: none of it may be refused.
        self._file = AppendFile(
            path, open_locked, lambda fresh: encode(header) if fresh else b"", is_bounded=False
        )

    @classmethod
    def open(cls, context: SinkContext) -> RecordsSink:
        """Always asked for."""
        return cls(context.directory, context.header)

    def write(self, record: Record) -> None:
        """Takes any record; the header is in the file already."""
        if not isinstance(record, RunHeader):
            self._file.write(encode(record))

    def tail(self, least: int) -> tuple[int, bytes, bytes]:
        """Lines at the end, of more than so many bytes with what is torn behind them: where they begin, some
        that stand before them, and they themselves. Raises OSError where that is the file's header.
        """
        fd = open_regular(self._file.path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(fd, "rb") as file:
            first, size = len(file.readline()), os.fstat(fd).st_size
            start = max(first, size - least - MAX_LINE_BYTES)
            file.seek(start)
            held = file.read()
        begin = held.rfind(b"\n", 0, max(0, len(held) - least - 1)) + 1
        if len(held) - begin <= least or (begin == 0 and start > first):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return start + begin, held[:begin], held[begin:]

    def end_at(self, place: int, records: Iterable[Record]) -> None:
        """Puts these in the place of all that stands from there on, which is longer: they take no room on the
        disk. Raises OSError.
        """
        fd = open_regular(self._file.path, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            lines = b"".join(map(encode, records))
            if os.pwrite(fd, lines, place) == len(lines):
                os.ftruncate(fd, place + len(lines))
        finally:
            os.close(fd)
