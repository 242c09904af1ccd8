"""Spans by OpenTelemetry's own exporter: what a receiver decodes is what the records say."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs OpenTelemetry; `make test-trace` runs it where it is")

from google.protobuf.descriptor import Descriptor
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from flagscale_perf.analysis.drawing import Drawing
from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.timeline import Drawn, Id, Item, Process, Track
from flagscale_perf.analysis.whole import whole_of
from flagscale_perf.bench.records import BenchPoint
from flagscale_perf.report.otlp import BATCH, pieces
from flagscale_perf.spine.jsonl import encode
from tests import queue_sample
from tests.fakes import make_header, sample_run
from tests.profile_runs import make_profile
from tests.queue_sample import MONO_NS, WALL_NS, run
from tests.rpc_sessions import make_call, make_session
from tests.traces import drawing_of

pytestmark = pytest.mark.trace
TRACK = Track(Process(None, None, "s", "trace", ""), "operations")
IDS = {"traceId", "spanId", "parentSpanId"}
KINDS = {
    "producer": Span.SPAN_KIND_PRODUCER,
    "consumer": Span.SPAN_KIND_CONSUMER,
    "internal": Span.SPAN_KIND_INTERNAL,
}


def requests_of(lines: Iterable[str]) -> list[ExportTraceServiceRequest]:
    """The lines of a file, decoded. Ids are hexadecimal there, and base 64 in protobuf's own JSON."""

    def in_base_64(found: dict[str, Any]) -> dict[str, Any]:
        ids = {name: bytes.fromhex(found[name]) for name in IDS & found.keys()}
        return found | {name: base64.b64encode(each).decode() for name, each in ids.items()}

    return [
        ParseDict(json.loads(line, object_hook=in_base_64), ExportTraceServiceRequest()) for line in lines
    ]


def decoded(requests: list[ExportTraceServiceRequest]) -> dict[bytes, tuple[dict[str, Any], Span]]:
    """Spans by their id, each with what is said of its process."""
    return {
        span.span_id: ({each.key: value_of(each.value) for each in resource.resource.attributes}, span)
        for request in requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
        if scope.scope.name.startswith("flagscale_perf.")
        for span in scope.spans
    }


def value_of(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


def spans_of(session: Session) -> list[Item]:
    return [one for one in Drawing(whole_of(session, [])).items() if isinstance(one, Item) and one.id]


def lines_of(session: Session) -> list[bytes]:
    return [*pieces(Drawing(whole_of(session, [])))]


def same(made: Span, span: Item, wall_ns: int) -> None:
    """Asserts that the two are the same; `wall_ns`: to be added to monotonic marks."""
    assert span.id
    ids = (made.trace_id, made.span_id, made.parent_span_id)
    parent = b"" if span.parent is None else span.parent.span.to_bytes(8, "big")
    assert ids == (span.id.trace.to_bytes(16, "big"), span.id.span.to_bytes(8, "big"), parent)
    assert (made.start_time_unix_nano, made.end_time_unix_nano) == (
        span.begin_ns + wall_ns,
        span.end_ns + wall_ns,
    )
    assert (made.name, made.kind) == (span.name, KINDS[span.kind])
    links = [
        (int.from_bytes(link.trace_id, "big"), int.from_bytes(link.span_id, "big")) for link in made.links
    ]
    assert links == [(link.trace, link.span) for link in span.links]
    status = Status() if span.error is None else Status(code=Status.STATUS_CODE_ERROR, message=span.error)
    assert made.status == status
    values = {each.key: value_of(each.value) for each in made.attributes}
    renamed = {"partition": "messaging.destination.name", "rows": "messaging.batch.message_count"}
    own = {renamed.get(name, f"tq.{name}"): value for name, value in span.facts.items()}
    assert own.items() <= values.items()
    assert values.keys() - own.keys() <= {"messaging.system", "messaging.operation.type", "error.type"}


def test_a_receiver_decodes_what_the_records_say(tmp_path: Path) -> None:
    made = run(tmp_path)
    spans = list(spans_of(made))
    found = decoded(requests_of(lines_of(made)))
    assert len(found) == len(spans) == 5
    for span in spans:
        assert span.id
        process, other = found[span.id.span.to_bytes(8, "big")]
        same(other, span, WALL_NS - MONO_NS)
        own = span.track.process
        assert process == {
            "service.name": own.title,
            "service.instance.id": str(own.pid),
            "process.pid": own.pid,
            "host.name": "node1",
            "tq.session": "20260102_030405",
        }


def test_the_file_has_the_same_with_ids_in_hexadecimal_digits(tmp_path: Path) -> None:
    made = run(tmp_path)
    (line,) = lines_of(made)
    found = {
        span["spanId"]: span
        for resource in json.loads(line)["resourceSpans"]
        for span in resource["scopeSpans"][0]["spans"]
    }
    for span in spans_of(made):
        assert span.id
        same_ids = found[f"{span.id.span:016x}"]
        assert same_ids["traceId"] == f"{span.id.trace:032x}"
        assert same_ids.get("parentSpanId") == (span.parent and f"{span.parent.span:016x}")
        assert [link["spanId"] for link in same_ids.get("links", ())] == [
            f"{x.span:016x}" for x in span.links
        ]
        assert same_ids["startTimeUnixNano"] == str(span.begin_ns + WALL_NS - MONO_NS)


def strict(found: dict[str, Any], message: Descriptor) -> None:
    """Asserts what OTLP's JSON encoding demands beyond protobuf's: only known keys, in lowerCamelCase, enums
    as integers (their names must not be used), and ids in hexadecimal digits. protobuf's parser takes names.
    """
    fields = {field.json_name: field for field in message.fields}
    for name, value in found.items():
        field = fields[name]
        for each in value if isinstance(value, list) else [value]:
            if field.enum_type is not None:
                assert type(each) is int and each in field.enum_type.values_by_number, name
            elif field.message_type is not None:
                strict(each, field.message_type)
            elif name in IDS:
                assert len(bytes.fromhex(each)) == (16 if name == "traceId" else 8)


def test_a_strict_reader_takes_it(tmp_path: Path) -> None:
    (line,) = lines_of(run(tmp_path))
    strict(json.loads(line), ExportTraceServiceRequest.DESCRIPTOR)
    assert b'"kind":4' in line and b'"kind":5' in line and b"SPAN_KIND" not in line
    failed = Item("get", TRACK, 1, 2, id=Id(1, 2), kind="consumer", error="Timeout")
    (line,) = pieces(drawing_of(make_header()), [failed])
    strict(json.loads(line), ExportTraceServiceRequest.DESCRIPTOR)
    assert b'"code":2' in line and b"STATUS_CODE" not in line


def test_many_go_in_requests_of_a_bounded_size() -> None:
    spans: list[Drawn] = [
        Item("get", TRACK, number, number + 5, id=Id(1, number + 1)) for number in range(2 * BATCH + 3)
    ]
    requests = requests_of(pieces(drawing_of(make_header()), spans))
    sizes = [len(request.resource_spans[0].scope_spans[0].spans) for request in requests]
    assert sizes == [BATCH, BATCH, 3]
    assert len(decoded(requests)) == len(spans)


def test_what_is_drawn_and_has_no_id_is_no_span() -> None:
    assert [*pieces(drawing_of(make_header()), [Item("clear", TRACK, 1, 2)])] == []


@pytest.mark.parametrize("instrument", ["training", "profile", "rpc", "trace", "bench"])
def test_every_instruments_items_are_spans_with_parents_that_are_there(
    instrument: str, tmp_path: Path
) -> None:
    made: dict[str, Any] = {
        "training": lambda: sample_run(),
        "profile": lambda: None,
        "rpc": lambda: [make_session(), make_call(1)],
        "trace": queue_sample.records,
        "bench": lambda: [make_header(instrument="bench"), BenchPoint("copy", "time", "s", {}, 5, 9, [1.0])],
    }
    path = tmp_path / "perf_records_20240129_103000.jsonl"
    records = made[instrument]()
    if records is None:
        path = make_profile().write(tmp_path)
    else:
        path.write_bytes(b"".join(map(encode, records)))
    found = decoded(requests_of(lines_of(open_session(path))))
    assert found
    for process, span in found.values():
        assert span.end_time_unix_nano >= span.start_time_unix_nano
        assert process["service.name"]
        if span.parent_span_id and span.attributes and instrument != "trace":
            parent = found[span.parent_span_id][1]
            assert parent.trace_id == span.trace_id
