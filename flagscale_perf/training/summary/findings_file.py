"""What is found while the training lasts, for scripts: a line of JSON when it begins, worsens or ends."""

from __future__ import annotations

from typing import ClassVar

from flagscale_perf.sinks.base import FileSink, SinkContext
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.files import AppendFile, open_shared
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.live import FindingRecord
from flagscale_perf.spine.records import Record

FINDINGS_FILE = "findings.jsonl"


class FindingsSink(FileSink):
    """`findings.jsonl`, of all sessions of a directory; there from the first finding on."""

    name: ClassVar[str] = "findings"
    cost: ClassVar[str] = "no new lines in findings.jsonl; the run file has them all"
    rebuilds: ClassVar[bool] = False

    def __init__(self, context: SinkContext) -> None:
        header = context.header
        self._session_id = header.session_id
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
        self._file = AppendFile(context.directory / FINDINGS_FILE, open_shared, lambda fresh: b"")

    @classmethod
    def open(cls, context: SinkContext) -> FindingsSink:
        """Always asked for."""
        return cls(context)

    def write(self, record: Record) -> None:
        """Keeps a finding's line."""
        if isinstance(record, FindingRecord):
            self._file.write(dump(record.told(self._session_id, self._anchor)).encode() + b"\n")

    def flush(self) -> None:
        """Brings the lines to the file. Raises OSError."""
        if self._file.waiting_bytes:
            super().flush()
