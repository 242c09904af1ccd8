"""Spans in Zipkin's JSON."""

from __future__ import annotations

import json
from pathlib import Path

from flagscale_perf.trace.export.formats import zipkin_lines
from flagscale_perf.trace.export.spans import spans_of
from tests.unit.trace.export.sample import run

TRACE = "0af7651916cd43dd8448eb211c80319c"


def test_a_put_its_call_and_the_get_of_what_it_put(tmp_path: Path) -> None:
    made = run(tmp_path)
    put, rollout, get, failed, _ = json.loads("".join(zipkin_lines(spans_of(made))))
    assert put == {
        "traceId": TRACE,
        "id": put["id"],
        "name": "put",
        "kind": "PRODUCER",
        "parentId": rollout["id"],
        "timestamp": 1_700_000_000_000_002,
        "duration": 1,
        "localEndpoint": {"serviceName": "RolloutWorker"},
        "tags": {
            "tq.number": "1",
            "tq.call": "2",
            "tq.unit_ns": "250",
            "tq.slowest_unit": "TQ_STORAGE_UNIT_1",
            "tq.slowest_unit_ns": "200",
            "tq.size_bytes": "64",
            "tq.rows": "4",
            "tq.fields": "1",
            "tq.first_row": "0",
            "tq.last_row": "3",
            "tq.partition": "train",
            "tq.trace_id": "0af76519-16cd-43dd-8448-eb211c80319c",
            "tq.start_ns": "1700000000000002000",
            "tq.total_ns": "500",
            "process.pid": "101",
            "host.name": "node1",
        },
    }
    assert ("parentId" in rollout, "kind" in rollout, rollout["name"]) == (False, False, "rollout")
    assert (get["kind"], get["tags"]["tq.links"]) == ("CONSUMER", f"{TRACE}-{put['id']}")
    assert failed["tags"]["error"] == "rollout"


def test_a_run_without_spans_is_an_empty_list() -> None:
    assert "".join(zipkin_lines([])) == "[]\n"
