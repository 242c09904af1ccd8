"""Items as trace events."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from flagscale_perf.analysis.timeline import Counter, Drawn, End, Item, Process, Track
from flagscale_perf.report.trace import pieces
from tests.fakes import make_header
from tests.traces import drawing_of

RANK = Process("node0", 42, "s", "training", "rank 3", 3)
OTHER = Process("node0", None, "s", "toy", "all \x1b")


def events_of(*items: Drawn, **header: Any) -> list[dict[str, Any]]:
    made = json.loads(b"".join(pieces(drawing_of(make_header(**header)), items)))
    assert made["displayTimeUnit"] == "ms"
    found: list[dict[str, Any]] = made["traceEvents"]
    return found


def test_every_item_is_an_event_in_microseconds_from_the_start() -> None:
    zero_ns, row = make_header().start_mono_ns, Track(RANK, "row", 2)
    on = {"pid": 42, "tid": 1}
    assert events_of(
        Counter("power", OTHER, zero_ns, 640.0),
        Item("work", row, zero_ns + 1000, zero_ns + 3000, {"why": "\u202e"}, error="ValueError"),
        Item("note", row, zero_ns + 5000, zero_ns + 5000, {"text": "x"}),
    ) == [
        {"ph": "M", "name": "process_name", "pid": 1 << 24, "tid": 0, "args": {"name": "all \\x1b"}},
        {"ph": "M", "name": "process_sort_index", "pid": 1 << 24, "tid": 0, "args": {"sort_index": 1 << 24}},
        {"ph": "C", "name": "power", "pid": 1 << 24, "tid": 0, "ts": 0.0, "args": {"value": 640.0}},
        {"ph": "M", "name": "process_name", "pid": 42, "tid": 0, "args": {"name": "rank 3 on node0"}},
        {"ph": "M", "name": "process_sort_index", "pid": 42, "tid": 0, "args": {"sort_index": 3}},
        {"ph": "M", "name": "thread_name", **on, "args": {"name": "row"}},
        {"ph": "M", "name": "thread_sort_index", **on, "args": {"sort_index": 200}},
        {
            "ph": "X",
            "name": "work",
            **on,
            "ts": 1.0,
            "dur": 2.0,
            "args": {"why": "\\u202e", "error": "ValueError"},
        },
        {"ph": "i", "s": "t", "name": "note", **on, "ts": 5.0, "args": {"text": "x"}},
    ]


def test_an_arrow_leads_from_one_span_into_another_by_an_id_of_64_bits() -> None:
    zero_ns, key = make_header().start_mono_ns, (1 << 64) - 1
    ends = [End(key, zero_ns + at, at == 1000, "sample") for at in (1000, 5000)]
    rows = [Track(RANK, name) for name in ("a", "b")]
    made = events_of(
        *(Item("x", row, end.at_ns, end.at_ns + 10, ends=(end,)) for row, end in zip(rows, ends, strict=True))
    )
    common = {"name": "sample", "cat": "flow", "id": "0xffffffffffffffff", "pid": 42}
    assert [event for event in made if event["ph"] in "sf"] == [
        {"tid": 1, "ts": 1.0, **common, "ph": "s"},
        {"tid": 2, "ts": 5.0, **common, "ph": "f", "bp": "e"},
    ]


def test_facts_of_the_header_that_are_not_known_are_left_out() -> None:
    for known in ({"script": "train_gpt.py", "device": "NVIDIA H200"}, {"script": None}, {}):
        header = replace(make_header(), facts=known)
        made = json.loads(b"".join(pieces(drawing_of(header), [])))
        kept = {name: value for name, value in known.items() if value}
        assert made["otherData"] == {"session": header.session_id, **kept}
