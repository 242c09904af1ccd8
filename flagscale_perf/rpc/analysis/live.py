"""Calls while they are being recorded: the screen of `watch`."""

from __future__ import annotations

from collections import deque

from flagscale_perf.analysis.blocks import Block, Note, Quantity
from flagscale_perf.analysis.live import Curve, LiveSession
from flagscale_perf.rpc.analysis.blocks import stage_bar
from flagscale_perf.rpc.facts import RpcFacts
from flagscale_perf.rpc.figures import MIB, method_name, status_name
from flagscale_perf.rpc.records import CallRecord, Status
from flagscale_perf.rpc.totals import CallTotals, Totals
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.records import EventRecord, Record, RunHeader

SHOWN_METHODS = 8
SHOWN_EVENTS = 4
CURVES = (
    Curve[Totals]("calls/s", "", "blue", 0, lambda one: float(one.calls)),
    Curve[Totals]("a call", "ms", "green", 3, lambda one: one.total_ns / one.calls / NS_PER_MS),
    Curve[Totals]("MiB/s", "", "orange", 1, lambda one: one.moved_bytes / MIB),
)


class LiveCalls(LiveSession[Totals]):
    """One session of calls.

    Attributes:
        facts: of the session.
        totals: of all calls.
    """

    nothing = "no call"

    def __init__(self, header: RunHeader) -> None:
        """Raises PerfError for a header without a valid session id."""
        super().__init__(header, Totals)
        self.facts, self.totals = RpcFacts.of(header.facts), CallTotals()
        self._events: deque[EventRecord] = deque(maxlen=SHOWN_EVENTS)
        self._slowest: CallRecord | None = None
        self._failed: CallRecord | None = None

    def take(self, record: Record) -> None:
        """Calls, and the last events."""
        if isinstance(record, CallRecord):
            self._call(record)
        elif isinstance(record, EventRecord):
            self._events.append(record)

    def _call(self, call: CallRecord) -> None:
        self.totals.add(call)
        self.lived(end_ns := call.start_ns + call.total_ns)
        self.second(end_ns).add(call)
        if self._slowest is None or call.total_ns > self._slowest.total_ns:
            self._slowest = call
        if call.status != Status.OK:
            self._failed = call

    @property
    def counted(self) -> dict[str, int]:
        """How many calls have come so far."""
        return {"calls": self.totals.overall.calls}

    def head(self) -> tuple[str, str]:
        """The heading: what has been counted, where the calls go, and the session."""
        facts = self.facts
        parts = (facts.payload, facts.control, facts.device, facts.dtype)
        title = f"{self.totals.overall.calls:,} calls, {facts.transport} {facts.endpoint}"
        return title, ", ".join([f"session {self.header.session_id}", *filter(None, parts)])

    def blocks(self) -> list[Block]:
        """Curves, stages, methods, the slowest and the last failed call, events."""
        overall = self.totals.overall
        if not overall.calls:
            return [Note("no call yet")]
        blocks: list[Block] = [self.series("calls", CURVES), *self._stages(), *self._methods()]
        if self._slowest is not None:
            took_ms = self._slowest.total_ns / NS_PER_MS
            blocks.append(
                Note(
                    f"slowest: call {self._slowest.number}, {method_name(self._slowest.method)},"
                    f" {took_ms:.3f} ms"
                )
            )
        if self._failed is not None:
            words = f"{overall.failed} failed, the last one call {self._failed.number}"
            blocks.append(Note(f"{words}: {status_name(self._failed.status)}", "bad"))
        return blocks + [Note(f"{event.name}: {event.text}", "warn") for event in self._events]

    def _stages(self) -> list[Block]:
        totals = Totals()
        for second in self._seconds.values():
            totals.merge(second)
        told = totals.partly_told_words()
        return [stage_bar("stages of these calls", totals), *([Note(told)] if told else [])]

    def _methods(self) -> list[Note]:
        methods = sorted(self.totals.methods.items(), key=lambda item: -item[1].total_ns)
        notes = []
        for name, totals in methods[:SHOWN_METHODS]:
            mean_ms = Quantity(totals.total_ns / totals.calls / NS_PER_MS, "ms", 3)
            share = Quantity(totals.total_ns / (self.totals.overall.total_ns or 1), "share")
            calls = f"{method_name(name):<20} {totals.calls:>9,} calls  "
            notes.append(Note((calls, mean_ms, " a call  ", share, " of the time")))
        if len(methods) > SHOWN_METHODS:
            notes.append(Note(f"and {len(methods) - SHOWN_METHODS} more methods"))
        return notes
