"""What holds a split model's calls back, and which of the programs' options change it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from diagnosis.attention import attention_in
from diagnosis.rules import judge_split
from split_inference.traffic import Pass, Stage

from flagscale_perf.analysis.job import open_session
from flagscale_perf.rpc.analysis.instrument import read_calls
from flagscale_perf.rpc.analysis.report import CallsReport
from flagscale_perf.rpc.records import CallRecord
from tests.rpc_sessions import FACTS, MS, US, make_call, write_run
from tests.tee_gpu.sessions import PREFILL, SMALL, calls_of


def found_in(tmp_path, calls, facts=FACTS) -> CallsReport:
    return judge_split(read_calls(open_session(write_run(tmp_path, calls, facts))))


def flags_of(report: CallsReport, name: str) -> list[list[str]]:
    return next([change.flags for change in one.changes] for one in report.findings if one.name == name)


def test_attentions_products_are_known_by_their_bytes(tmp_path) -> None:
    found = attention_in(found_in(tmp_path, calls_of()).source)
    assert (found.pairs, found.repeats) == (16, 4)
    assert found.scores_bytes == 16 * 4 * 32 * 1024 * 1024  # layers, float32, heads, tokens squared
    assert found.keys_bytes == 16 * 4 * 1024 * 32 * 64  # repeated to 32 heads of 64


def test_every_pass_of_a_long_session_counts(tmp_path) -> None:
    calls: list[CallRecord] = []
    for step in range(50):  # more calls than a report keeps
        run = Pass(tokens=1, cached=step)
        calls += calls_of(run, SMALL, first=len(calls) + 1)
    found = attention_in(found_in(tmp_path, calls).source)
    assert (len(calls), found.pairs, found.repeats) == (1300, 50 * 4, 2)
    assert found.scores_bytes == sum(4 * 4 * 4 * (1 + step) for step in range(50))  # layers, float32, heads


def test_keys_that_are_not_repeated_are_sent_once(tmp_path) -> None:
    assert attention_in(found_in(tmp_path, calls_of(Pass(repeat_kv=False))).source).repeats == 1


def test_a_fused_layer_has_none(tmp_path) -> None:
    assert attention_in(found_in(tmp_path, calls_of(Pass(Stage.FUSED_ATTENTION))).source).pairs == 0


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        (PREFILL, Pass(item_bytes=2), "half_precision"),
        (PREFILL, Pass(repeat_kv=False), "repeated_kv"),
        (Pass(repeat_kv=False), Pass(Stage.FUSED_ATTENTION), "unfused_attention"),
    ],
)
def test_a_pass_with_the_change_gains_what_was_promised(tmp_path, before, after, name) -> None:
    one, other = calls_of(before), calls_of(after)
    finding = next(each for each in found_in(tmp_path, one).findings if each.name == name)
    overhead = [sum(call.total_ns - (call.server_ns or 0) for call in calls) for calls in (one, other)]
    assert finding.cost_s == pytest.approx((overhead[0] - overhead[1]) / 1e9, rel=0.2)


def test_findings_that_count_the_same_time_say_so(tmp_path) -> None:
    found = {one.name: set(one.overlaps) for one in found_in(tmp_path, calls_of()).findings}
    assert found["half_precision"] >= {"repeated_kv", "unfused_attention"}
    assert not {"half_precision", "repeated_kv"} & found["many_calls"]


def test_protected_stages_are_offered_first_and_the_other_one_with_what_it_gives_up(tmp_path) -> None:
    finding = next(one for one in found_in(tmp_path, calls_of()).findings if one.name == "many_calls")
    assert [change.flags for change in finding.changes] == [
        ["--stage fused_attention"],
        ["--stage fused_blocks"],
        [],
        [],
        ["--stage fused_layer"],
    ]
    assert (
        "this gives up the protection: hidden states, norms, scores and the key" in finding.changes[-1].text
    )


def test_a_stage_that_is_in_use_is_not_offered(tmp_path) -> None:
    run = Pass(Stage.FUSED_BLOCKS)
    blocks = calls_of(run) + calls_of(run, first=51)
    assert flags_of(found_in(tmp_path, blocks), "many_calls") == [[], [], ["--stage fused_layer"]]


WAITING = {"sent_bytes": 1000, "received_bytes": 1000, "serialize_ns": 0, "wait_ns": 4 * MS}


@pytest.mark.parametrize(
    ("facts", "flags"),
    [
        ({"transport": "TCP"}, [["LLAMA_IPC_PATH=ipc:///..."], ["--payload shared"], ["--threads"], []]),
        ({"payload": "shared", "latency_ns": 100 * US}, [["--threads"], []]),
    ],
)
def test_what_is_set_already_is_not_advised(tmp_path, facts, flags) -> None:
    report = found_in(tmp_path, [make_call(1, total_ns=10 * MS, **WAITING)], replace(FACTS, **facts))
    assert flags_of(report, "transport") == flags


@pytest.mark.parametrize(
    ("method", "role"), [("Lookup", "client"), ("BatchLinear", "probe"), ("Matmul", "client")]
)
def test_options_are_for_calls_of_the_split_model_alone(tmp_path, method, role) -> None:
    calls = [make_call(number, method=method, serialize_ns=4 * MS) for number in range(1, 60)]
    report = found_in(tmp_path, calls, replace(FACTS, role=role, transport="TCP", payload="msgpack"))
    assert {"serialization", "many_calls", "half_precision"} <= {one.name for one in report.findings}
    assert [flag for one in report.findings for change in one.changes for flag in change.flags] == []
