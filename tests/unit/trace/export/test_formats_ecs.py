"""Spans as documents of the Elastic Common Schema."""

from __future__ import annotations

import json
from pathlib import Path

from flagscale_perf.trace.export.formats import ECS_VERSION, ecs_lines
from flagscale_perf.trace.export.spans import spans_of
from tests.unit.trace.export.sample import run

TRACE = "0af7651916cd43dd8448eb211c80319c"


def test_a_line_is_a_document(tmp_path: Path) -> None:
    made = run(tmp_path)
    put, rollout, get, failed, _ = map(json.loads, ecs_lines(spans_of(made)))
    assert put == {
        "@timestamp": "2023-11-14T22:13:20.000002000Z",
        "ecs": {"version": ECS_VERSION},
        "event": {
            "kind": "event",
            "category": ["process"],
            "type": ["info"],
            "action": "put",
            "dataset": "transfer_queue.span",
            "outcome": "success",
            "start": "2023-11-14T22:13:20.000002000Z",
            "end": "2023-11-14T22:13:20.000002500Z",
            "duration": 500,
        },
        "trace": {"id": TRACE},
        "span": {"id": put["span"]["id"], "kind": "producer"},
        "parent": {"id": rollout["span"]["id"]},
        "service": {"name": "RolloutWorker"},
        "process": {"pid": 101, "title": "RolloutWorker"},
        "host": {"name": "node1"},
        "tq": {
            "number": 1,
            "call": 2,
            "unit_ns": 250,
            "slowest_unit": "TQ_STORAGE_UNIT_1",
            "slowest_unit_ns": 200,
            "size_bytes": 64,
            "rows": 4,
            "fields": 1,
            "first_row": 0,
            "last_row": 3,
            "partition": "train",
            "trace_id": "0af76519-16cd-43dd-8448-eb211c80319c",
        },
    }
    assert get["span"]["links"] == [{"trace": {"id": TRACE}, "span": {"id": put["span"]["id"]}}]
    assert (failed["event"]["outcome"], failed["event"]["type"]) == ("failure", ["info", "error"])
    assert (failed["error"], failed["tq"].get("put_ns")) == ({"type": "rollout"}, None)


def test_a_hostile_name_stays_in_its_field(tmp_path: Path) -> None:
    from flagscale_perf.spine.peers.records import NameRecord
    from tests.unit.trace.export.sample import call, header

    made = run(tmp_path, [header(), NameRecord(1, 2, 'f\n{"x": 1}\x1b[31m | </script>'), call(1, 2_000, 5)])
    (line,) = ecs_lines(spans_of(made))
    assert line.count("\n") == 1 and "\x1b" not in line
    assert json.loads(line)["event"]["action"] == 'f\n{"x": 1}\x1b[31m | </script>'
