"""Traces while they are being recorded: the screen of `watch`."""

from __future__ import annotations

from dataclasses import dataclass

from flagscale_perf.analysis.blocks import Block, Note, Quantity, StackedBar, Stripe
from flagscale_perf.analysis.live import Curve, LiveSession
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.records import Record, RunHeader
from flagscale_perf.trace.analysis import verdicts
from flagscale_perf.trace.analysis.blocks import COLOURS
from flagscale_perf.trace.analysis.remarks import remarks_of
from flagscale_perf.trace.analysis.source import RunReader, Traces
from flagscale_perf.trace.analysis.sums import Sums
from flagscale_perf.trace.figures import MIB, ONE_OF
from flagscale_perf.trace.records import CallRecord, Kind, OperationRecord

SHOWN_FUNCTIONS = 8
SHOWN_REMARKS = 4


@dataclass
class Second:
    """Operations that ended in it, each counted as many as it stands for. `size_bytes`: of those that
    succeeded; None where one's are not known.
    """

    count: float = 0.0
    total_ns: float = 0.0
    size_bytes: float | None = 0.0


CURVES = (
    Curve[Second]("operations/s", "", "blue", 0, lambda one: one.count),
    Curve[Second]("an operation", "ms", "green", 3, lambda one: one.total_ns / one.count / NS_PER_MS),
    Curve[Second](
        "MiB/s", "", "orange", 1, lambda one: None if one.size_bytes is None else one.size_bytes / MIB
    ),
)


class LiveTraces(LiveSession[Second]):
    """A session of traces up to its newest record, as `watch` shows it."""

    def __init__(self, header: RunHeader) -> None:
        """Raises PerfError for a header without a valid session id."""
        super().__init__(header, Second)
        self._traces = Traces("", "")
        self._reader = RunReader(self._traces, self.course)

    @property
    def _sums(self) -> Sums:
        return self._traces.sums

    def take(self, record: Record) -> None:
        """Takes the next record: calls and operations are counted."""
        self._reader.add(record)
        if isinstance(record, CallRecord | OperationRecord):
            self.lived(end_ns := record.start_ns + record.total_ns)
        if isinstance(record, OperationRecord):
            second, weight = self.second(end_ns), record.weight_milli / 1000
            second.count += weight
            second.total_ns += weight * record.total_ns
            if not record.error and second.size_bytes is not None:
                size_bytes = record.size_bytes
                second.size_bytes = None if size_bytes is None else second.size_bytes + weight * size_bytes

    @property
    def counted(self) -> dict[str, int]:
        """Calls and operations so far."""
        return {"calls": self._sums.calls, "operations": self._sums.count}

    def head(self) -> tuple[str, str]:
        """The heading: what has been counted, and the session."""
        title = f"{self._sums.calls:,} calls, {self._sums.count:,} operations of the queue"
        return title, f"session {self.header.session_id}"

    def blocks(self) -> list[Block]:
        """Curves, stages of an operation, functions, remarks."""
        if not self._sums.calls and not self._sums.count:
            return [Note("no call and no operation yet")]
        blocks: list[Block] = [self.series("operations", CURVES)] if self._seconds else []
        blocks += [bar for kind in Kind if (bar := self._bar(kind)) is not None]
        functions = list(self._sums.functions.items())
        for name, one in functions[:SHOWN_FUNCTIONS]:
            mean = Quantity((one.total.mean or 0.0) / NS_PER_MS, "ms", 3)
            share, verdict = Quantity(one.queue_share, "share"), verdicts.of_queue(one.queue_share)
            tone = verdicts.TONES.get(verdict or "", "")
            calls = f"{name[:24]:<24} {round(one.total.weight):>9,} calls  "
            blocks.append(Note((calls, mean, " a call  ", share, f" in the queue: {verdict}"), tone))
        if len(functions) > SHOWN_FUNCTIONS:
            blocks.append(Note(f"and {len(functions) - SHOWN_FUNCTIONS} more functions"))
        self._reader.settle()
        return blocks + [Note(line, "warn") for line in remarks_of(self._traces)[:SHOWN_REMARKS]]

    def _bar(self, kind: Kind) -> StackedBar | None:
        one = self._sums.operations[kind]
        mean, rows = (one.total.mean or 0.0) / NS_PER_MS, one.waterfall()
        if not rows:
            return None
        parts = [Stripe(name, mean * share, share, COLOURS[name]) for name, _, share in rows]
        return StackedBar(f"{ONE_OF[kind]}, on average", "ms", parts)
