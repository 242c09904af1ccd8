"""Ids of spans and names of their processes, as other systems write them."""

from __future__ import annotations

from flagscale_perf.trace.export.spans import SpanId, TraceSpan


def trace_hex(each: SpanId) -> str:
    """A trace's id in 32 hexadecimal digits."""
    return f"{each.trace:032x}"


def span_hex(each: SpanId) -> str:
    """A span's id in 16 hexadecimal digits."""
    return f"{each.span:016x}"


def service_of(span: TraceSpan) -> str:
    """The service name of the span's process."""
    return span.process.title if span.process is not None and span.process.title else "transfer_queue"
