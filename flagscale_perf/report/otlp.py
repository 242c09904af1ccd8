"""A job's items in OpenTelemetry's own protocol (OTLP), through its own exporter, as lines of its file
format: one JSON request each, as the collector's `otlpjsonfile` receiver reads them.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

from flagscale_perf.analysis.drawing import Drawing
from flagscale_perf.analysis.instrument import load
from flagscale_perf.analysis.timeline import Drawn, Id, Item, Process
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.packages import missing

BATCH = 512  # spans of a request: what OpenTelemetry's own processor sends at once
_USER = "--format otlp"
_IDS = ("traceId", "spanId", "parentSpanId")
_PLAIN = (str, bool, int, float)

try:
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
except ImportError as error:
    raise missing("opentelemetry", error, _USER, "take another --format") from None


def pieces(drawing: Drawing, items: Iterable[Drawn] | None = None) -> Iterator[bytes]:
    """One request of up to `BATCH` spans per line, made while it is read: each item that has an id is one; of
    the drawing, or only of some of its items.
    """
    spans = _Spans(drawing)
    for batch in spans.batches(drawing.items() if items is None else items):
        request = MessageToDict(encode_spans(batch), use_integers_for_enums=True)  # as OTLP's JSON has them
        yield json.dumps(_with_hex_ids(request), separators=(",", ":")).encode() + b"\n"


class _Spans:
    def __init__(self, drawing: Drawing) -> None:
        self._anchor = Anchor(drawing.wall_ns, drawing.zero_ns)
        self._resources: dict[Process, Resource] = {}
        self._scopes: dict[str, InstrumentationScope] = {}

    def batches(self, items: Iterable[Drawn]) -> Iterator[list[ReadableSpan]]:
        made = (self._span(each, each.id) for each in items if isinstance(each, Item) and each.id)
        while batch := list(itertools.islice(made, BATCH)):
            yield batch

    def _span(self, item: Item, own: Id) -> ReadableSpan:
        process = item.track.process
        scope = f"flagscale_perf.{process.instrument}"
        if process not in self._resources:
            self._resources[process] = _resource(process)
        begin_ns = self._anchor.wall_of(item.begin_ns)
        return ReadableSpan(
            name=item.name,
            context=_context(own),
            parent=None if item.parent is None else _context(item.parent),
            resource=self._resources[process],
            attributes=_attributes(item),
            links=[Link(_context(link)) for link in item.links],
            kind=SpanKind[item.kind.upper()],
            status=Status(StatusCode.UNSET) if item.error is None else Status(StatusCode.ERROR, item.error),
            start_time=begin_ns,
            end_time=begin_ns + item.end_ns - item.begin_ns,
            instrumentation_scope=self._scopes.setdefault(scope, InstrumentationScope(scope)),
        )


def _resource(process: Process) -> Resource:
    words = load(process.instrument).spans
    prefix = words.prefix or process.instrument
    values: dict[str, str | int] = {
        "service.name": process.title or words.service or process.instrument,
        f"{prefix}.session": process.session,
    }
    if process.pid is not None:
        values |= {"process.pid": process.pid, "service.instance.id": str(process.pid)}
    if process.host is not None:
        values["host.name"] = process.host
    return Resource(values)


def _attributes(item: Item) -> dict[str, Any]:
    instrument = item.track.process.instrument
    words = load(instrument).spans
    prefix = words.prefix or instrument
    found = {
        words.names.get(name, f"{prefix}.{name}"): value if isinstance(value, _PLAIN) else str(value)
        for name, value in item.facts.items()
        if value is not None
    }
    found |= words.of_kind.get(item.kind, {})
    return found if item.error is None else {**found, "error.type": item.error}


def _context(each: Id) -> SpanContext:
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
