"""The summary of one session, there from the first seconds on."""

from __future__ import annotations

from typing import ClassVar

from flagscale_perf.sinks.base import SinkContext
from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.files import replace_file
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.spine.session import file_names
from flagscale_perf.training.records import Record
from flagscale_perf.training.summary import RunTotals, dump_summary

PERIOD_NS = 5 * NS_PER_S


class SummarySink:
    """`perf_summary_<session>.json`; replaced as a whole every few seconds while records come, and at the
    end.
    """

    name: ClassVar[str] = "summary"
    cost: ClassVar[str] = (
        "perf_summary is out of date; `flagscale-perf report` makes it again from the run file"
    )
    rebuilds: ClassVar[bool] = True

    def __init__(self, context: SinkContext, period_ns: int = PERIOD_NS) -> None:
        self._totals = RunTotals(context.header)
        self.path = context.directory / file_names(context.header.session_id)["summary"]
        self._period_ns = period_ns
        self._due_ns = 0
        self._is_stale = True

    @classmethod
    def open(cls, context: SinkContext) -> SummarySink:
        """Always asked for."""
        return cls(context)

    def write(self, record: Record) -> None:
        """Adds the record."""
        self._totals.add(record)
        self._is_stale = True
        if isinstance(record, RunEnd):
            self._due_ns = self._period_ns = (
                0  # nor does what comes behind it wait: there may be no later flush
            )

    def flush(self) -> None:
        """Replaces the file if it is out of date and due. Raises OSError."""
        if self._is_stale and monotonic_ns() >= self._due_ns:
            replace_file(self.path, dump_summary(self._totals.as_dict()).encode())
            self._is_stale = False
            self._due_ns = monotonic_ns() + self._period_ns

    def close(self) -> None:
        """Holds nothing."""
