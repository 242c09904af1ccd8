"""Spans as Zipkin's JSON, version 2: one array, as its POST /api/v2/spans accepts it.

Zipkin knows microseconds and no links; the nanoseconds and the linked spans are among a span's tags.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from flagscale_perf.trace.export.ids import service_of, span_hex, trace_hex
from flagscale_perf.trace.export.spans import TraceSpan

_NS_PER_US = 1000


def zipkin_lines(spans: Iterable[TraceSpan]) -> Iterator[str]:
    """The whole array, one span per line."""
    separator = "[\n"
    for span in spans:
        yield separator + json.dumps(_zipkin(span), separators=(",", ":"))
        separator = ",\n"
    yield "[]\n" if separator == "[\n" else "\n]\n"


def _zipkin(span: TraceSpan) -> dict[str, Any]:
    tags = {f"tq.{name}": str(value) for name, value in span.values.items()}
    tags |= {"tq.start_ns": str(span.start_ns), "tq.total_ns": str(span.end_ns - span.start_ns)}
    if span.links:
        tags["tq.links"] = ",".join(f"{trace_hex(link)}-{span_hex(link)}" for link in span.links)
    if span.error is not None:
        tags["error"] = span.error
    if span.process is not None:
        tags["process.pid"] = str(span.process.pid)
    if span.host is not None:
        tags["host.name"] = span.host
    made: dict[str, Any] = {
        "traceId": trace_hex(span.id),
        "id": span_hex(span.id),
        "name": span.name,
        "timestamp": span.start_ns // _NS_PER_US,
        "duration": max((span.end_ns - span.start_ns) // _NS_PER_US, 1),  # 0 would be one that never ended
        "localEndpoint": {"serviceName": service_of(span)},
        "tags": tags,
    }
    if span.parent is not None:
        made["parentId"] = span_hex(span.parent)
    if span.kind != "internal":
        made["kind"] = span.kind.upper()
    return made
