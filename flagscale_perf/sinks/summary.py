"""The summary of one session, there from the first seconds on."""

from __future__ import annotations

from typing import ClassVar

from flagscale_perf.sinks.base import Sink, SinkContext
from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.files import replace_file
from flagscale_perf.spine.records import Record, RunEnd
from flagscale_perf.spine.session import file_names

PERIOD_NS = 5 * NS_PER_S


class SummarySink(Sink):
    """`perf_summary_<session>.json`; replaced every few seconds while records come, and at the end."""

    name: ClassVar[str] = "summary"
    cost: ClassVar[str] = (
        "perf_summary is out of date; `flagscale-perf report` makes it again from the run file"
    )
    rebuilds: ClassVar[bool] = True
    file: ClassVar[str] = "summary"

    def __init__(self, context: SinkContext, period_ns: int = PERIOD_NS) -> None:
        self._summary = context.presentation.summary(context.header)
        self.path = context.directory / file_names(context.header.session_id)["summary"]
        self._period_ns = period_ns
        self._due_ns = 0
        self._is_stale = True

    def write(self, record: Record) -> None:
        """Adds the record to the summary."""
        self._summary.add(record)
        self._is_stale = True
        if isinstance(record, RunEnd):
            # nor does what comes behind the end wait: there may be no later flush
            self._due_ns = self._period_ns = 0

    def flush(self) -> None:
        """Replaces the file if it is out of date and due. Raises OSError."""
        if self._is_stale and monotonic_ns() >= self._due_ns:
            replace_file(self.path, self._summary.text().encode())
            self._is_stale = False
            self._due_ns = monotonic_ns() + self._period_ns
