"""What is shown of calls."""

from __future__ import annotations

from flagscale_perf.toy.records import CallsRecord

from flagscale_perf.spine.figures import (
    GIGABYTES,
    MILLISECONDS,
    PLAIN,
    Column,
    Figure,
    Gauge,
    Table,
)

TABLE = Table(
    record=CallsRecord,
    step="number",
    time="end_wall_ns",
    context=lambda header: None,
    figures=(
        Figure("calls", "calls", PLAIN, lambda record, run: record.calls, column=Column("Calls", 9)),
        Figure(
            "call_ms",
            "mean call",
            MILLISECONDS,
            lambda record, run: record.dur_ns / record.calls,
            column=Column("Call(ms)", 11),
            curve="toy/call_ms",
            gauge=Gauge("toy_call_seconds", "Mean call of the last interval."),
        ),
        Figure("sent_gb", "sent", GIGABYTES, lambda record, run: record.sent_bytes),
    ),
)
