"""The text log of one session."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from flagscale_perf.sinks.base import FileSink, SinkContext
from flagscale_perf.sinks.text_format import TextFormat
from flagscale_perf.spine.files import AppendFile, open_shared, rotate
from flagscale_perf.spine.records import Record
from flagscale_perf.spine.session import file_names, rotated_name

MAX_BYTES = 32 << 20


class MetricsSink(FileSink):
    """`perf_metrics_<session>.log`; its older parts end in `.1.log` (the newest of them), `.2.log` ..."""

    name: ClassVar[str] = "text log"
    cost: ClassVar[str] = "no new lines in it; `flagscale-perf report` reads the run file"
    file: ClassVar[str] = "metrics"

    def __init__(self, context: SinkContext, max_bytes: int = MAX_BYTES) -> None:
        self._format = TextFormat(context)
        self._session_id = context.header.session_id
        self._max_bytes = max_bytes
        path = context.directory / file_names(self._session_id)["metrics"]
        self._file = AppendFile(
            path, open_shared, lambda fresh: self._format.heading().encode() if fresh else b""
        )

    def write(self, record: Record) -> None:
        """Keeps the record's line, if it has one."""
        if line := self._format.line(record):
            self._file.write(line.encode())

    def flush(self) -> None:
        """Brings the lines to the file and begins a new part before one gets too large. Raises OSError."""
        if self._file.size() and self._file.size() + self._file.waiting_bytes > self._max_bytes:
            rotate(self._file.path, self._part)
        super().flush()

    def _part(self, number: int) -> Path:
        return self._file.path.with_name(rotated_name(self._session_id, number))
