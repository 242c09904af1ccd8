"""A session summed up: the summary's file, and Prometheus' metrics."""

import json

from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.records import Record, RunEnd, RunHeader
from flagscale_perf.trace.summary import TraceMetrics, TraceSummary
from tests.traced import FUNCTION, call, operation

HEADER = RunHeader(1, "20240129_103000", 0, 0, {"job": "a"}, {}, "trace")
BEGUN = ProcessRecord(1, 123, "Producer", 5, end=None, dropped=0, lost=0)
OVER = ProcessRecord(1, 123, "Producer", 5, end="completed", dropped=3, lost=2)
RECORDS: list[Record] = [
    BEGUN,
    NameRecord(1, FUNCTION, "rollout"),
    operation(1, process=1),
    call(2, process=1),
    OVER,
    RunEnd("completed", 0, 2, 3),
]


def test_the_summary_says_what_there_was_and_what_is_missing() -> None:
    summary = TraceSummary(HEADER)
    for record in RECORDS:
        summary.add(record)
    content = json.loads(summary.text())
    assert (content["state"], content["records_lost"], content["facts"]) == ("completed", 3, {"job": "a"})
    assert content["processes"] == [
        {
            "number": 1,
            "pid": 123,
            "title": "Producer",
            "start_ns": 5,
            "end": "completed",
            "dropped": 3,
            "lost": 2,
        }
    ]
    assert content["operations"]["get"]["size_bytes"] == 15_938_355
    assert content["functions"]["rollout"]["compute_ns"] == 800_000_000


def test_a_session_that_goes_on_is_running() -> None:
    content = json.loads(TraceSummary(HEADER).text())
    assert (content["state"], content["records_lost"], content["operations"]) == ("running", None, {})


def test_every_metric_is_declared_and_has_as_many_labels() -> None:
    metrics = TraceMetrics(HEADER)
    for record in RECORDS:
        metrics.add(record)
    values = metrics.values()
    assert values.keys() == metrics.table.keys()
    for name, series in values.items():
        assert {len(labels) for labels in series} == {len(metrics.table[name].labels)}
    assert values["tq_client_operations_total"] == {("get", "ok"): 1, ("get", "error"): 0}
    assert values["tq_client_call_seconds"]["rollout", "1.0"] == 1
    assert values["tq_client_call_seconds"]["rollout", "0.5"] == 0
    assert values["tq_client_processes"] == {(): 0}
    assert values["tq_client_lost_total"] == {(): 2}
