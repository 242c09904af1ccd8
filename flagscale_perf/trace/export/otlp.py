"""Spans in OpenTelemetry's own protocol (OTLP), through its own exporter, as lines of its file format: one
JSON request each, as the collector's `otlpjsonfile` receiver reads them.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

from flagscale_perf.spine.packages import missing
from flagscale_perf.spine.peers.records import ProcessRecord
from flagscale_perf.trace.export.spans import SpanId, TraceSpan

BATCH = 512  # spans of a request: what OpenTelemetry's own processor sends at once
SCOPE = "flagscale_perf.trace"
_USER = "--format otlp"
_IDS = ("traceId", "spanId", "parentSpanId")

try:
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
except ImportError as error:
    raise missing("opentelemetry", error, _USER, "take another --format") from None

_KINDS = {"producer": SpanKind.PRODUCER, "consumer": SpanKind.CONSUMER, "internal": SpanKind.INTERNAL}
# Fields that OpenTelemetry's conventions for messaging have names for.
_CONVENTIONS = {"partition": "messaging.destination.name", "rows": "messaging.batch.message_count"}


def otlp_lines(spans: Iterable[TraceSpan]) -> Iterator[str]:
    """One request of up to `BATCH` spans per line."""
    for batch in _batches(spans):
        request = MessageToDict(encode_spans(batch), use_integers_for_enums=True)  # as OTLP's JSON has them
        yield json.dumps(_with_hex_ids(request), separators=(",", ":")) + "\n"


def _batches(spans: Iterable[TraceSpan]) -> Iterator[list[ReadableSpan]]:
    resources: dict[tuple[str | None, ProcessRecord | None], Resource] = {}
    scope, rest = InstrumentationScope(SCOPE), iter(spans)
    while batch := list(itertools.islice(rest, BATCH)):
        for span in batch:
            if (span.host, span.process) not in resources:
                resources[span.host, span.process] = _resource(span)
        yield [_readable(span, resources[span.host, span.process], scope) for span in batch]


def _resource(span: TraceSpan) -> Resource:
    values: dict[str, str | int] = {"service.name": span.service, "tq.session": span.session}
    if span.process is not None:
        values |= {"process.pid": span.process.pid, "service.instance.id": str(span.process.pid)}
    if span.host is not None:
        values["host.name"] = span.host
    return Resource(values)


def _readable(span: TraceSpan, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    attributes: dict[str, Any] = {_attribute(name): value for name, value in span.values.items()}
    if span.kind != "internal":
        attributes["messaging.system"] = "transfer_queue"
        attributes["messaging.operation.type"] = "send" if span.kind == "producer" else "receive"
    if span.error is not None:
        attributes["error.type"] = span.error
    return ReadableSpan(
        name=span.name,
        context=_context(span.id),
        parent=None if span.parent is None else _context(span.parent),
        resource=resource,
        attributes=attributes,
        links=[Link(_context(link)) for link in span.links],
        kind=_KINDS[span.kind],
        status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=scope,
    )


def _attribute(name: str) -> str:
    return _CONVENTIONS.get(name, f"tq.{name}")


def _context(each: SpanId) -> SpanContext:
    return SpanContext(each.trace, each.span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _with_hex_ids(value: Any) -> Any:
    """Converts ids to hexadecimal, as OTLP's JSON encoding has them; protobuf's own JSON uses base 64."""
    if isinstance(value, list):
        return [_with_hex_ids(each) for each in value]
    if isinstance(value, dict):
        return {
            name: base64.b64decode(each).hex() if name in _IDS else _with_hex_ids(each)
            for name, each in value.items()
        }
    return value
