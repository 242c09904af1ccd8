"""Calls while they are being recorded: the last minutes second by second, for the screen of `watch`."""

from __future__ import annotations

from collections import deque
from typing import Any

from flagscale_perf.analysis.blocks import (
    Block,
    Line,
    Note,
    Panel,
    Quantity,
    Report,
    Section,
    Series,
    StackedBar,
    Stripe,
)
from flagscale_perf.rpc.facts import RpcFacts
from flagscale_perf.rpc.figures import MB, method_name, status_name
from flagscale_perf.rpc.records import CallRecord, Status
from flagscale_perf.rpc.stages import ALL_STAGES
from flagscale_perf.rpc.totals import CallTotals, Totals, tenths
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S, Anchor
from flagscale_perf.spine.records import GOOD_ENDS, KILLED, EventRecord, RunEnd, RunHeader
from flagscale_perf.spine.session import labels_of
from flagscale_perf.spine.units import duration

SECONDS = 240  # that are shown
SHOWN_METHODS = 8
SHOWN_EVENTS = 4
RUNNING = "running"


class LiveCalls:
    """One session as far as it has been read, in bounded memory.

    Attributes:
        header, facts: of the session.
        totals: of all calls.
        end: None as long as none was recorded.
    """

    def __init__(self, header: RunHeader) -> None:
        """Raises PerfError for a header without a valid session id."""
        self._labels = labels_of(header)
        self.header, self.facts = header, RpcFacts.of(header.facts)
        self.totals = CallTotals()
        self.end: RunEnd | None = None
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
        self._seconds: deque[tuple[int, Totals]] = deque(maxlen=SECONDS)  # since the session's start
        self._events: deque[EventRecord] = deque(maxlen=SHOWN_EVENTS)
        self._slowest: CallRecord | None = None
        self._failed: CallRecord | None = None
        self._last_ns = header.start_mono_ns

    def add(self, record: Any) -> None:
        """Adds the next record."""
        if isinstance(record, CallRecord):
            self._call(record)
        elif isinstance(record, EventRecord):
            self._events.append(record)
        elif isinstance(record, RunEnd):
            self.end = record

    def _call(self, call: CallRecord) -> None:
        self.totals.add(call)
        end_ns = call.start_ns + call.total_ns
        self._last_ns = max(self._last_ns, end_ns)
        second = (end_ns - self.header.start_mono_ns) // NS_PER_S
        if not self._seconds or self._seconds[-1][0] < second:
            self._seconds.append((second, Totals()))
        self._seconds[-1][1].add(call)
        if self._slowest is None or call.total_ns > self._slowest.total_ns:
            self._slowest = call
        if call.status != Status.OK:
            self._failed = call

    def state(self, has_writer: bool) -> str:
        """The reason of the end, or "running", or "killed"."""
        if self.end is not None:
            return self.end.reason
        return RUNNING if has_writer else KILLED

    def report(self, has_writer: bool, now_wall_ns: int) -> Report:
        """The content of the screen."""
        state = self.state(has_writer)
        return Report(
            title=f"{self.totals.overall.calls:,} calls, {self.facts.transport} {self.facts.endpoint}",
            facts=[Note(self._about()), *self._quiet(state, now_wall_ns)],
            sections=[Section("calls", "", "", self._blocks())],
            content=self,
            state=state,
            tone="bad" if state not in (*GOOD_ENDS, RUNNING) else "good",
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"session": self.header.session_id, "calls": self.totals.overall.calls}

    def before(self) -> str:
        """A one-line summary, shown when a newer session follows."""
        return f"before: session {self.header.session_id}, {self.totals.overall.calls:,} calls"

    def _about(self) -> str:
        facts = self.facts
        parts = (facts.payload, facts.control, facts.device, facts.dtype)
        return ", ".join([f"session {self.header.session_id}", *filter(None, parts)])

    def _quiet(self, state: str, now_wall_ns: int) -> list[Note]:
        """How long there has been no call, if that is long."""
        quiet_s = (now_wall_ns - self._anchor.wall_of(self._last_ns)) / NS_PER_S
        if state != RUNNING or quiet_s < 2:
            return []
        return [Note(f"no call for {duration(quiet_s)}", "warn")]

    def _blocks(self) -> list[Block]:
        overall = self.totals.overall
        if not overall.calls:
            return [Note("no call yet")]
        blocks: list[Block] = [self._series(), self._stages(), *self._methods()]
        if self._slowest is not None:
            took_ms = self._slowest.total_ns / NS_PER_MS
            blocks.append(Note(f"slowest: call {self._slowest.number}, {method_name(self._slowest.method)},"
                               f" {took_ms:.3f} ms"))  # fmt: skip
        if self._failed is not None:
            words = f"{overall.failed} failed, the last one call {self._failed.number}"
            blocks.append(Note(f"{words}: {status_name(self._failed.status)}", "bad"))
        return blocks + [Note(f"{event.name}: {event.text}", "warn") for event in self._events]

    def _series(self) -> Series:
        """Second by second; an incomplete second is only shown if it is the only one."""
        seconds = list(self._seconds)
        if len(seconds) > 1 and self.end is None:
            seconds.pop()
        x = [second for second, _ in seconds]
        figures = {
            ("calls/s", "", "blue", 0): [float(totals.calls) for _, totals in seconds],
            ("a call", "ms", "green", 3): [
                totals.total_ns / totals.calls / NS_PER_MS for _, totals in seconds
            ],
            ("MB/s", "", "orange", 1): [
                (totals.sent_bytes + totals.received_bytes) / MB for _, totals in seconds
            ],
        }
        panels = [
            Panel(title, unit, [Line(title, x, values, colour)], decimals=decimals)
            for (title, unit, colour, decimals), values in figures.items()
        ]
        return Series("calls", f"last {len(x)} seconds with calls", panels, "second", None)

    def _stages(self) -> StackedBar:
        totals = Totals()
        for _, second in self._seconds:
            totals.merge(second)
        shares = tenths(totals.stages_ns)
        parts = [
            Stripe(stage.title, took_ns / NS_PER_MS, share, stage.colour)
            for stage, took_ns, share in zip(ALL_STAGES, totals.stages_ns, shares, strict=True)
        ]
        return StackedBar("stages of these calls", "ms", parts)

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
