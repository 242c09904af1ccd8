"""The run file: every record, one a line; everything else can be made again from it."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from flagscale_perf.sinks.base import FileSink, SinkContext
from flagscale_perf.spine.files import AppendFile, open_locked
from flagscale_perf.spine.jsonl import encode
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
