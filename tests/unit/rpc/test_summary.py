"""A session of calls summed up as it goes."""

from __future__ import annotations

import json

from flagscale_perf.rpc.summary import RpcMetrics, RpcSummary
from tests.rpc_sessions import ended, make_call, make_served, make_session


def test_the_summary_has_sums_and_state() -> None:
    summary = RpcSummary(make_session())
    for record in (make_call(1), make_served(1), make_call(2, method="Matmul", status=4)):
        summary.add(record)
    content = json.loads(summary.text())
    assert (content["state"], content["records_lost"], content["served"]) == ("running", None, 1)
    assert content["overall"] == {
        "calls": 2,
        "failed": 1,
        "total_ns": 20_000_000,
        "serialize_ns": 6_000_000,
        "send_ns": 2_000_000,
        "wait_ns": 4_000_000,
        "queue_ns": 200_000,
        "server_ns": 2_800_000,
        "receive_ns": 2_000_000,
        "deserialize_ns": 2_000_000,
        "other_ns": 1_000_000,
        "sent_bytes": 2 << 20,
        "received_bytes": 4 << 20,
        "socket_bytes": 6 << 20,
        "shared_bytes": 0,
    }
    assert {name: each["calls"] for name, each in content["methods"].items()} == {
        "BatchLinear": 1,
        "Matmul": 1,
    }
    summary.add(ended("killed"))
    content = json.loads(summary.text())
    assert (content["state"], content["records_lost"]) == ("killed", 0)


def test_the_metrics_are_counters() -> None:
    metrics = RpcMetrics(make_session())
    for record in (make_call(1), make_call(2), make_call(3, status=1), ended()):
        metrics.add(record)
    values = metrics.values()
    assert set(values) == set(metrics.table)
    assert values["rpc_calls_total"] == {("BatchLinear", "OK"): 2, ("BatchLinear", "TIMEOUT"): 1}
    assert values["rpc_sent_bytes_total"] == {("BatchLinear",): 3 << 20}
    seconds = values["rpc_call_seconds_total"]
    assert seconds["BatchLinear", "serialize"] == 0.009
    assert round(sum(seconds.values()), 9) == 0.03


def test_a_stages_time_comes_with_how_many_calls_tell_it() -> None:
    metrics = RpcMetrics(make_session())
    for call in (make_call(1, server_ns=None), make_call(2), make_call(3)):
        metrics.add(call)
    told = metrics.values()["rpc_told_calls_total"]
    assert {stage: told[make_call().method, stage] for stage in ("send", "server")} == {
        "send": 3,
        "server": 2,
    }
