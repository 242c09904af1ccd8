"""Spans as documents of the Elastic Common Schema, one JSON object a line, as Filebeat and Elasticsearch take
them. What the schema has no field for is below `tq`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.trace.export.ids import service_of, span_hex, trace_hex
from flagscale_perf.trace.export.spans import TraceSpan

VERSION = "8.17"


def ecs_lines(spans: Iterable[TraceSpan]) -> Iterator[str]:
    """One line per span."""
    for span in spans:
        yield json.dumps(_document(span), separators=(",", ":")) + "\n"


def _document(span: TraceSpan) -> dict[str, Any]:
    made: dict[str, Any] = {
        "@timestamp": _time(span.start_ns),
        "ecs": {"version": VERSION},
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
        "trace": {"id": trace_hex(span.id)},
        "span": {"id": span_hex(span.id), "kind": span.kind},
        "service": {"name": service_of(span)},
        "tq": dict(span.values),
    }
    if span.parent is not None:
        made["parent"] = {"id": span_hex(span.parent)}
    if span.links:
        made["span"]["links"] = [
            {"trace": {"id": trace_hex(link)}, "span": {"id": span_hex(link)}} for link in span.links
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
