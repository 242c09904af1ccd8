"""What holds the calls back: each rule at its limit, and gains worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.rpc.analysis.findings import RULES
from flagscale_perf.rpc.analysis.instrument import read_calls
from flagscale_perf.rpc.analysis.report import CallsReport
from flagscale_perf.rpc.dtypes import DType
from flagscale_perf.rpc.records import CallRecord
from tests.rpc_sessions import (
    FACTS,
    MS,
    REQUIREMENT_LOG,
    SECOND,
    US,
    llama_calls,
    make_call,
    split,
    write_run,
)

SMALL = {"sent_bytes": 1000, "received_bytes": 1000, "queue_ns": 0, "server_ns": 0}
QUIET = SMALL | dict.fromkeys(("serialize_ns", "send_ns", "wait_ns", "receive_ns", "deserialize_ns"), 0)

_BY_STAGE = {"serialize": "serialization", "deserialize": "deserialization"}


def found_in(tmp_path, calls, facts=FACTS) -> CallsReport:
    return read_calls(open_session(write_run(tmp_path, calls, facts)))


def names(report: CallsReport) -> list[str]:
    return [finding.name for finding in report.findings]


@pytest.mark.parametrize(("serialize_us", "is_found"), [(3000, False), (3001, True)])
def test_serialization_counts_above_30_percent(tmp_path, serialize_us, is_found) -> None:
    times = {"serialize_ns": serialize_us * US, "wait_ns": 2 * MS, "total_ns": 10 * MS}
    report = found_in(tmp_path, [make_call(1, **SMALL | times)])
    assert ("serialization" in names(report)) is is_found


@pytest.mark.parametrize("stage", ["send", "receive", "wait"])
@pytest.mark.parametrize(("took_us", "is_found"), [(3000, False), (3001, True)])
def test_so_does_each_part_of_the_transport(tmp_path, stage, took_us, is_found) -> None:
    times = {f"{stage}_ns": took_us * US, "total_ns": 10 * MS}
    report = found_in(tmp_path, [make_call(1, **QUIET | times)])
    assert names(report) == (["transport"] if is_found else [])


@pytest.mark.parametrize(("took_us", "is_found"), [(100, False), (101, True)])
def test_a_way_as_short_as_that_of_a_few_bytes_is_no_finding(tmp_path, took_us, is_found) -> None:
    times = {"send_ns": took_us * US, "total_ns": 200 * US}
    report = found_in(tmp_path, [make_call(number, **QUIET | times) for number in range(1, 41)])
    assert names(report) == (["transport"] if is_found else [])


@pytest.mark.parametrize("stage", ["serialize", "send", "receive", "deserialize"])
@pytest.mark.parametrize(("slow", "is_found"), [(1, False), (20, False), (26, True), (50, True)])
def test_calls_that_lost_their_cpu_make_no_finding_of_a_short_session(
    tmp_path, stage, slow, is_found
) -> None:
    def call(number: int, took_ns: int) -> CallRecord:
        return make_call(number, **QUIET | {f"{stage}_ns": took_ns, "total_ns": took_ns + 20 * US})

    calls = [call(number, 10 * MS if number <= slow else US) for number in range(1, 51)]
    found = names(found_in(tmp_path, calls))
    assert found == ([_BY_STAGE.get(stage, "transport")] if is_found else [])


def test_a_few_large_calls_that_are_sent_slowly_are_found_among_many_small_ones(tmp_path) -> None:
    small = [make_call(n, **QUIET | {"total_ns": 50 * US}) for n in range(1, 41)]
    large = QUIET | {"sent_bytes": 10_000, "send_ns": 9 * MS, "total_ns": 10 * MS}
    report = found_in(tmp_path, [*small, make_call(41, **large), make_call(42, **large)])
    assert report.findings[0].title == "Send takes 81.8 % of the time"


@pytest.mark.parametrize(("calls", "is_found"), [(50, False), (51, True)])
def test_calls_count_above_50(tmp_path, calls, is_found) -> None:
    quiet = SMALL | {"serialize_ns": 0, "wait_ns": 0}
    report = found_in(tmp_path, [make_call(number, **quiet) for number in range(1, calls + 1)])
    assert ("many_calls" in names(report)) is is_found


def test_what_they_cost_is_the_empty_call_that_the_handshake_measured(tmp_path) -> None:
    quiet = QUIET | {"wait_ns": 110 * US}
    report = found_in(tmp_path, [make_call(number, **quiet) for number in range(1, 101)])
    (finding,) = report.findings
    assert (finding.least_s, finding.cost_s) == pytest.approx((100 * 100e-6, 100 * 110e-6))  # as they waited
    assert finding.least_gain == pytest.approx(0.01 / (1 - 0.01))  # 10 ms of 1 s


def test_an_empty_call_that_has_become_dearer_has_both_figures(tmp_path) -> None:
    """1 ms and 1 ms more a MB among these calls, where the handshake measured 0.1 ms."""
    calls = [
        make_call(n, **QUIET | {"sent_bytes": mb * 1_000_000, "received_bytes": 0, "wait_ns": (1 + mb) * MS})
        for n, mb in enumerate([1, 2, 3, 4] * 15, 1)
    ]
    (evidence,) = next(f.evidence for f in found_in(tmp_path, calls).findings if f.name == "many_calls")
    assert evidence.figure == (
        "calls; 4 calls are repeated 15 times; among these calls, an empty one takes up to 1.000 ms, and "
        "took 0.100 ms when the session began"
    )


@pytest.mark.parametrize(
    ("dtype", "is_found"), [(DType.FLOAT32, True), (DType.BFLOAT16, False), (DType.FLOAT16, False), (0, True)]
)
def test_half_precision_is_for_what_is_wider(tmp_path, dtype, is_found) -> None:
    report = found_in(tmp_path, [make_call(1, dtype=int(dtype))])
    assert ("half_precision" in names(report)) is is_found


def test_and_for_what_is_large(tmp_path) -> None:
    at_limit = make_call(1, sent_bytes=1 << 19, received_bytes=1 << 19)
    assert "half_precision" not in names(found_in(tmp_path, [at_limit]))


def test_nothing_is_said_where_nothing_is_beyond_a_limit(tmp_path) -> None:
    quiet = SMALL | {"serialize_ns": 2 * MS, "dtype": int(DType.BFLOAT16)}
    assert names(found_in(tmp_path, [make_call(1, **quiet)])) == []


def test_a_pass_with_half_the_bytes_gains_what_was_promised(tmp_path) -> None:
    one, other = llama_calls(), llama_calls(split(item=2))
    finding = next(each for each in found_in(tmp_path, one).findings if each.name == "half_precision")
    overhead = [sum(call.total_ns - (call.server_ns or 0) for call in calls) for calls in (one, other)]
    assert finding.cost_s == pytest.approx((overhead[0] - overhead[1]) / 1e9, rel=0.2)


def test_shared_memory_leaves_one_copy_of_each_byte(tmp_path) -> None:
    facts = replace(FACTS, copy_bytes_per_s=10**10)
    report = found_in(tmp_path, llama_calls(), facts)
    (finding,) = [each for each in report.findings if each.name == "shared_memory"]
    overhead = sum(call.total_ns - (call.server_ns or 0) - 20_000 for call in llama_calls()) / 1e9
    moved = report.overall.sent_bytes + report.overall.received_bytes
    assert finding.cost_s == pytest.approx(overhead - moved / 1e10, rel=0.02)
    assert finding.least_s == pytest.approx(overhead - 2 * moved / 1e10, rel=0.02)
    assert report.unjudged == []


def test_it_is_not_judged_where_copies_are_not_known_and_not_found_where_it_is_in_use(tmp_path) -> None:
    report = found_in(tmp_path, llama_calls())
    assert report.unjudged == ["what shared memory would gain: how fast this machine copies is not known"]
    shared = replace(FACTS, payload="shared", copy_bytes_per_s=10**10)
    report = found_in(tmp_path, llama_calls(), shared)
    assert "shared_memory" not in names(report) and report.unjudged == []


def test_a_log_of_others_is_judged_as_far_as_it_goes(tmp_path) -> None:
    (tmp_path / "a.log").write_text(REQUIREMENT_LOG)
    report = read_calls(open_session(tmp_path / "a.log"))
    assert names(report) == ["serialization", "half_precision"]
    assert report.findings[0].cost_s == pytest.approx(3.702e-3)
    assert report.findings[0].cost_share is None  # no call has a start
    assert "the server and the transport are one figure in this log" in report.unjudged[0]


def test_the_evidence_names_the_call(tmp_path) -> None:
    (tmp_path / "a.log").write_text(REQUIREMENT_LOG)
    (evidence,) = read_calls(open_session(tmp_path / "a.log")).findings[0].evidence
    assert "call 3, BatchLinear: 2.345 of 3.491 ms" in evidence.figure
    assert (round(evidence.value, 3), evidence.limit, evidence.unit) == (0.614, 0.3, "share")


WAITING = SMALL | {"serialize_ns": 0, "wait_ns": 4 * MS, "total_ns": 10 * MS}


def advice(report: CallsReport) -> tuple[list[str], int]:
    """The first finding's causes, and how many changes it has."""
    finding = report.findings[0]
    assert finding.name == "transport"
    return list(finding.causes), len(finding.changes)


def test_over_tcp_every_change_is_left_to_make(tmp_path) -> None:
    facts = replace(FACTS, transport="TCP", payload="frames")
    causes, changes = advice(found_in(tmp_path, [make_call(1, **WAITING)], facts))
    assert (causes[0], changes) == ("TCP where both processes are on one machine", 3)


def test_what_is_set_already_is_not_advised(tmp_path) -> None:
    facts = replace(FACTS, transport="IPC", payload="shared", latency_ns=100 * US)
    causes, changes = advice(found_in(tmp_path, [make_call(1, **WAITING)], facts))
    assert changes == 1
    assert causes == [
        "processes that wait for a CPU: an empty call takes 0.100 ms here, and these stages 4.000 ms a call"
    ]


def test_nothing_is_promised_where_costs_do_not_explain_the_calls(tmp_path) -> None:
    """Every fifth call waits a hundred times as long as the others of its size."""
    calls = llama_calls()
    slow = [
        call._replace(wait_ns=100 * call.wait_ns, total_ns=call.total_ns + 99 * call.wait_ns)
        if call.number % 5 == 0
        else call
        for call in calls
    ]
    report = found_in(tmp_path, slow, replace(FACTS, copy_bytes_per_s=10**10))
    assert {one.name for one in report.findings if one.cost_s} <= {"serialization", "transport"}
    assert "what changes would gain: what calls and bytes cost explains" in report.unjudged[0]


def test_an_interval_holds_what_the_change_gains(tmp_path) -> None:
    """Calls of a size take 0.8 to 1.3 times what bytes cost; half of the bytes, half of that."""
    calls = [
        call._replace(
            start_ns=call.start_ns + n * 60 * SECOND,
            serialize_ns=round(call.serialize_ns * (0.8 + 0.1 * (n % 6))),
        )
        for n in range(6)
        for call in llama_calls(first=1 + n * 98)
    ]
    true = sum(call.serialize_ns + call.send_ns + call.receive_ns + call.deserialize_ns for call in calls) / 2
    true += sum(call.sent_bytes / 2 for call in calls) / 2
    finding = next(one for one in found_in(tmp_path, calls).findings if one.name == "half_precision")
    assert finding.least_s is not None and finding.cost_s is not None
    assert finding.least_s <= true / 1e9 <= finding.cost_s


def test_findings_that_count_the_same_time_say_so(tmp_path) -> None:
    report = found_in(tmp_path, llama_calls(), replace(FACTS, copy_bytes_per_s=10**10))
    found = {one.name: set(one.overlaps) for one in report.findings}
    assert found["half_precision"] == {"shared_memory"}
    assert "half_precision" not in found["many_calls"]


def test_no_finding_names_a_flag_of_some_program(tmp_path) -> None:
    assert [change.flags for rule in RULES for change in rule.changes if change.flags] == []
