"""Ids of spans and names of their processes, as other systems write them."""

from __future__ import annotations

from flagscale_perf.trace.export.spans import SpanId, TraceSpan


def trace_hex(each: SpanId) -> str:
    """The trace's, in 32 digits."""
    return f"{each.trace:032x}"


def span_hex(each: SpanId) -> str:
    """The span's, in 16 digits."""
    return f"{each.span:016x}"


def service_of(span: TraceSpan) -> str:
    """What its process is called."""
    return span.process.title if span.process is not None and span.process.title else "transfer_queue"
