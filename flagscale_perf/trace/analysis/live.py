"""Traces while they are being recorded: the screen of `watch`."""

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
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S, Anchor
from flagscale_perf.spine.records import GOOD_ENDS, KILLED, RunHeader
from flagscale_perf.spine.session import labels_of
from flagscale_perf.spine.units import duration
from flagscale_perf.trace.analysis import verdicts
from flagscale_perf.trace.analysis.blocks import COLOURS
from flagscale_perf.trace.analysis.columns import MIB
from flagscale_perf.trace.analysis.remarks import remarks_of
from flagscale_perf.trace.analysis.source import RUNNING, RunReader, Traces
from flagscale_perf.trace.analysis.sums import Sums
from flagscale_perf.trace.records import CallRecord, Kind, OperationRecord

SECONDS = 240  # that are shown
SHOWN_FUNCTIONS = 8
SHOWN_REMARKS = 4


class LiveTraces:
    """One session as far as it has been read, in bounded memory."""

    def __init__(self, header: RunHeader) -> None:
        """Raises PerfError for a header without a valid session id."""
        labels_of(header)
        self._header = header
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
        self._traces = Traces("", "")
        self._reader = RunReader(self._traces)
        self._seconds: deque[list[float]] = deque(maxlen=SECONDS)  # second, operations, their time, bytes
        self._last_ns = header.start_mono_ns

    @property
    def _sums(self) -> Sums:
        return self._traces.sums

    def add(self, record: Any) -> None:
        """Adds the next record."""
        self._reader.add(record)
        if isinstance(record, CallRecord | OperationRecord):
            self._last_ns = max(self._last_ns, record.start_ns + record.total_ns)
        if isinstance(record, OperationRecord):
            second = (record.start_ns + record.total_ns - self._header.start_mono_ns) // NS_PER_S
            if not self._seconds or self._seconds[-1][0] < second:
                self._seconds.append([second, 0.0, 0.0, 0.0])
            weight, now = record.weight_milli / 1000, self._seconds[-1]
            now[1] += weight
            now[2] += weight * record.total_ns
            now[3] += weight * (record.size_bytes or 0)

    def report(self, has_writer: bool, now_wall_ns: int) -> Report:
        """The content of the screen."""
        state = self._reader.end or (RUNNING if has_writer else KILLED)
        return Report(
            title=f"{self._sums.calls:,} calls, {self._sums.count:,} operations of the queue",
            facts=[Note(f"session {self._header.session_id}"), *self._quiet(state, now_wall_ns)],
            sections=[Section("traces", "", "", self._blocks())],
            content=self,
            state=state,
            tone="bad" if state not in (*GOOD_ENDS, RUNNING) else "good",
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"session": self._header.session_id, "calls": self._sums.calls, "operations": self._sums.count}

    def before(self) -> str:
        """A one-line summary, shown when a newer session follows."""
        return f"before: session {self._header.session_id}, {self._sums.calls:,} calls"

    def _quiet(self, state: str, now_wall_ns: int) -> list[Note]:
        """How long nothing has come, if that is long."""
        quiet_s = (now_wall_ns - self._anchor.wall_of(self._last_ns)) / NS_PER_S
        if state != RUNNING or quiet_s < 2:
            return []
        return [Note(f"nothing for {duration(quiet_s)}", "warn")]

    def _blocks(self) -> list[Block]:
        if not self._sums.calls and not self._sums.count:
            return [Note("no call and no operation yet")]
        blocks: list[Block] = [self._series()] if self._seconds else []
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
        return blocks + [Note(line, "warn") for line in remarks_of(self._traces)[:SHOWN_REMARKS]]

    def _series(self) -> Series:
        """Second by second; the last second may be incomplete."""
        seconds = list(self._seconds)
        if len(seconds) > 1 and not self._reader.end:
            seconds.pop()
        x = [second for second, *_ in seconds]
        figures: list[tuple[str, str, str, int, list[float | None]]] = [
            ("operations/s", "", "blue", 0, [count for _, count, *_ in seconds]),
            ("an operation", "ms", "green", 3, [took / count / NS_PER_MS for _, count, took, _ in seconds]),
            ("MB/s", "", "orange", 1, [size / MIB for *_, size in seconds]),
        ]
        panels = [
            Panel(title, unit, [Line(title, x, values, colour)], decimals=decimals)
            for title, unit, colour, decimals, values in figures
        ]
        return Series("operations", f"last {len(x)} seconds with operations", panels, "second", None)

    def _bar(self, kind: Kind) -> StackedBar | None:
        one = self._sums.operations[kind]
        mean, rows = (one.total.mean or 0.0) / NS_PER_MS, one.waterfall()
        if not rows:
            return None
        parts = [Stripe(name, mean * share, share, COLOURS[name]) for name, _, share in rows]
        return StackedBar(f"a {kind.name.lower()}, on average", "ms", parts)
