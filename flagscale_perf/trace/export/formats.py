"""The formats to which a run of this instrument can be exported."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from flagscale_perf.analysis.instrument import Export
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.trace.export.spans import TraceSpan, spans_of

ECS_VERSION = "8.17"
_NS_PER_US = 1000


def ecs_lines(spans: Iterable[TraceSpan]) -> Iterator[str]:
    """Documents of the Elastic Common Schema, one a line, as Filebeat and Elasticsearch take them. What the
    schema has no field for is below `tq`.
    """
    for span in spans:
        yield json.dumps(_ecs(span), separators=(",", ":")) + "\n"


def _ecs(span: TraceSpan) -> dict[str, Any]:
    made: dict[str, Any] = {
        "@timestamp": _time(span.start_ns),
        "ecs": {"version": ECS_VERSION},
        "event": {
            "kind": "event",
            "category": ["process"],
            "type": ["info"] if span.error is None else ["info", "error"],
            "action": span.name,
            "dataset": "transfer_queue.span",
            "outcome": "success" if span.error is None else "failure",
            "start": _time(span.start_ns),
            "end": _time(span.end_ns),
            "duration": span.end_ns - span.start_ns,
        },
        "trace": {"id": span.id.trace_hex},
        "span": {"id": span.id.span_hex, "kind": span.kind},
        "service": {"name": span.service},
        "tq": dict(span.values),
    }
    if span.parent is not None:
        made["parent"] = {"id": span.parent.span_hex}
    if span.links:
        made["span"]["links"] = [
            {"trace": {"id": link.trace_hex}, "span": {"id": link.span_hex}} for link in span.links
        ]
    if span.error is not None:
        made["error"] = {"type": span.error}
    if span.process is not None:
        made["process"] = {"pid": span.process.pid, "title": span.process.title}
    if span.host is not None:
        made["host"] = {"name": span.host}
    return made


def _time(unix_ns: int) -> str:
    """ISO time with nanoseconds, which datetime lacks."""
    seconds, ns = divmod(unix_ns, NS_PER_S)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ns:09d}Z"


def zipkin_lines(spans: Iterable[TraceSpan]) -> Iterator[str]:
    """Zipkin's JSON, version 2: one array, as its POST /api/v2/spans accepts it, one span a line. It knows
    microseconds and no links; the nanoseconds and the linked spans are among a span's tags.
    """
    separator = "[\n"
    for span in spans:
        yield separator + json.dumps(_zipkin(span), separators=(",", ":"))
        separator = ",\n"
    yield "[]\n" if separator == "[\n" else "\n]\n"


def _zipkin(span: TraceSpan) -> dict[str, Any]:
    tags = {f"tq.{name}": str(value) for name, value in span.values.items()}
    tags |= {"tq.start_ns": str(span.start_ns), "tq.total_ns": str(span.end_ns - span.start_ns)}
    if span.links:
        tags["tq.links"] = ",".join(f"{link.trace_hex}-{link.span_hex}" for link in span.links)
    if span.error is not None:
        tags["error"] = span.error
    if span.process is not None:
        tags["process.pid"] = str(span.process.pid)
    if span.host is not None:
        tags["host.name"] = span.host
    made: dict[str, Any] = {
        "traceId": span.id.trace_hex,
        "id": span.id.span_hex,
        "name": span.name,
        "timestamp": span.start_ns // _NS_PER_US,
        "duration": max((span.end_ns - span.start_ns) // _NS_PER_US, 1),  # 0 would be one that never ended
        "localEndpoint": {"serviceName": span.service},
        "tags": tags,
    }
    if span.parent is not None:
        made["parentId"] = span.parent.span_hex
    if span.kind != "internal":
        made["kind"] = span.kind.upper()
    return made


def _otlp(session: Session) -> Iterator[str]:
    from flagscale_perf.trace.export.otlp import otlp_lines  # needs OpenTelemetry

    return otlp_lines(spans_of(session))


EXPORTS = {
    "otlp": Export(
        _otlp, "ndjson", "OpenTelemetry's protocol: lines for a collector's otlpjsonfile receiver"
    ),
    "zipkin": Export(lambda session: zipkin_lines(spans_of(session)), "json", "POST it to /api/v2/spans"),
    "ecs": Export(
        lambda session: ecs_lines(spans_of(session)), "ndjson", "Elastic Common Schema, for Filebeat"
    ),
}
