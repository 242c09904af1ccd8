"""A timeline as trace events."""

from __future__ import annotations

import json

from flagscale_perf.analysis.timeline import Arrow, Counter, Moment, Name, Span, Track
from flagscale_perf.report.trace import trace_lines
from tests.fakes import make_header


def test_every_item_is_an_event_in_microseconds_from_the_start() -> None:
    header = make_header()
    zero_ns, track = header.start_mono_ns, Track(2, 3)
    items = [
        Name(Track(2, 0), "all \x1b", is_process=True),
        Name(track, "one"),
        Span(track, "work", zero_ns + 1000, zero_ns + 3000, {"why": "\u202e"}),
        Span(track, "slow", zero_ns, zero_ns + 2000, {"n": 1}, "straggler", "[3]"),
        Counter("power", zero_ns, 640.0),
        Moment("note", zero_ns + 5000, {"text": "x"}),
    ]
    trace = json.loads("".join(trace_lines(header, items)))
    on = {"pid": 2, "tid": 3}
    assert trace["otherData"]["session"] == header.session_id
    assert trace["traceEvents"] == [
        {"ph": "M", "name": "process_name", "pid": 2, "tid": 0, "args": {"name": "all \\x1b"}},
        {"ph": "M", "name": "thread_name", **on, "args": {"name": "one"}},
        {"ph": "X", "name": "work", **on, "ts": 1.0, "dur": 2.0, "args": {"why": "\\u202e"}},
        {"ph": "b", "name": "slow", **on, "ts": 0.0, "cat": "straggler", "id": "[3]", "args": {"n": 1}},
        {"ph": "e", "name": "slow", **on, "ts": 2.0, "cat": "straggler", "id": "[3]"},
        {"ph": "C", "name": "power", "pid": 1, "tid": 0, "ts": 0.0, "args": {"value": 640.0}},
        {"ph": "i", "s": "g", "name": "note", "pid": 1, "tid": 0, "ts": 5.0, "args": {"text": "x"}},
    ]


def test_an_arrow_leads_from_one_span_into_another() -> None:
    header = make_header()
    zero_ns = header.start_mono_ns
    arrow = Arrow("sample", "7", Track(2, 1), zero_ns + 1000, Track(3, 1), zero_ns + 5000)
    trace = json.loads("".join(trace_lines(header, [arrow])))
    common = {"name": "sample", "cat": "flow", "id": "7"}
    assert trace["traceEvents"] == [
        {"pid": 2, "tid": 1, "ts": 1.0, **common, "ph": "s"},
        {"pid": 3, "tid": 1, "ts": 5.0, **common, "ph": "f", "bp": "e"},
    ]
