"""What is found while the training lasts, for scripts: a line of JSON when it begins, and when it ends."""

from __future__ import annotations

from typing import Any, ClassVar

from flagscale_perf.sinks.base import FileSink, SinkContext
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S, Anchor
from flagscale_perf.spine.files import AppendFile, open_shared
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.records import EventRecord, Record
from flagscale_perf.training.rank_records import StragglerRecord
from flagscale_perf.training.ranks.late import straggler_text
from flagscale_perf.training.records import StepRecord
from flagscale_perf.training.slowdown import state_told
from flagscale_perf.training.window import end_mono_ns

FINDINGS_FILE = "findings.jsonl"
_FOUND = ("slow", "memory", "hardware", "standstill", "suspect")  # events that are findings


class FindingsSink(FileSink):
    """`findings.jsonl`, of all sessions of a directory; there from the first finding on."""

    name: ClassVar[str] = "findings"
    cost: ClassVar[str] = "no new lines in findings.jsonl; the run file has them all"
    rebuilds: ClassVar[bool] = False

    def __init__(self, context: SinkContext) -> None:
        header = context.header
        self._session_id = header.session_id
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
        self._now_ns = header.start_mono_ns
        self._told = ""  # of the last straggler, which an event of the same text follows
        self._file = AppendFile(context.directory / FINDINGS_FILE, open_shared, lambda fresh: b"")

    @classmethod
    def open(cls, context: SinkContext) -> FindingsSink:
        """Always asked for."""
        return cls(context)

    def write(self, record: Record) -> None:
        """Keeps a finding's line."""
        if isinstance(record, StepRecord):
            self._now_ns = end_mono_ns(record)
        elif isinstance(record, StragglerRecord):
            self._told = straggler_text(record)
            self._add(
                self._now_ns,
                finding="straggler",
                state="ends" if record.is_over else "begins",
                iteration=record.iteration,
                first_iteration=record.first_iteration,
                ranks=list(record.ranks),
                hostname=record.hostname,
                phase=record.phase,
                excess_ms=record.excess_ns / NS_PER_MS,
                iteration_ms=record.iteration_ns / NS_PER_MS,
                cause=record.cause,
                observed=record.observed,
                text=self._told,
            )
        elif isinstance(record, EventRecord) and record.name in _FOUND and record.text != self._told:
            state = state_told(record.text) if record.name == "slow" else None
            finding = "slowdown" if state else record.name
            what = {"finding": finding, "state": state or "begins", "iteration": record.iteration}
            self._add(record.at_ns, **what, text=record.text)

    def flush(self) -> None:
        """Brings the lines to the file. Raises OSError."""
        if self._file.waiting_bytes:
            super().flush()

    def _add(self, at_ns: int, **what: Any) -> None:
        when = {"session_id": self._session_id, "unix_s": self._anchor.wall_of(at_ns) / NS_PER_S}
        self._file.write(dump(when | what).encode() + b"\n")
