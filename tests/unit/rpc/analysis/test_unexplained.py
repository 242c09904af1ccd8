"""What bytes do not explain of a wait, and the findings made of it, in figures a reader can work out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.rpc.analysis.instrument import read_calls
from flagscale_perf.rpc.analysis.report import CallsReport
from flagscale_perf.rpc.analysis.unexplained import Peer, unexplained
from flagscale_perf.rpc.records import CallRecord
from tests.rpc_sessions import FACTS, MS, US, make_call, write_run

PROBED = replace(FACTS, role="probe", payload=None, receive_has_wait=True, latency_ns=None)
MIB = 1 << 20


def probed(number: int, method: str, receive_ns: int, size: int = 9, **stages: int) -> CallRecord:
    """A call that a probe has recorded: it waits in `receive`."""
    known = {"serialize_ns": 0, "send_ns": 0, "receive_ns": receive_ns, "deserialize_ns": 0} | stages
    nobody_says = dict.fromkeys(("wait_ns", "queue_ns", "server_ns"), None)
    sizes = {"sent_bytes": size, "received_bytes": size, "dtype": 0}
    return make_call(number, method=method, total_ns=sum(known.values()), **known, **nobody_says, **sizes)


def found_in(tmp_path, calls, **facts) -> CallsReport:
    return read_calls(open_session(write_run(tmp_path, calls, replace(PROBED, **facts))))


def named(report: CallsReport) -> list[str]:
    return [one.name for one in report.findings if one.name != "many_calls"]


def test_a_call_of_as_many_bytes_that_is_sooner_shows_what_bytes_cost() -> None:
    calls = [probed(1, "ping", 100 * US), probed(2, "score", 20 * MS), probed(3, "ping", 100 * US, 60_000)]
    assert unexplained(calls).methods_ns == {}, "a single call may be the machine's"
    found = unexplained([*calls, probed(4, "score", 20 * MS)])
    assert found.methods_ns == {"score": 2 * (20 * MS - 100 * US)}
    assert (found.dearest, found.peer, found.bytes_ns) == ("score", Peer("ping", 100 * US), 0)


def test_larger_calls_bound_smaller_ones_and_not_the_other_way_round() -> None:
    calls = [probed(1, "all", 8 * MS, 8 * MIB), probed(2, "part", 28 * MS, MIB), probed(3, "ping", MS)]
    found = unexplained([*calls, probed(4, "part", 28 * MS, MIB)])
    assert found.methods_ns == {"part": 2 * 20 * MS}
    assert found.bytes_ns == 3 * (8 - 1) * MS


def test_the_sleeping_server_is_named_and_not_the_arrays(tmp_path) -> None:
    calls = [probed(n, *(("score", 20 * MS) if n % 2 else ("ping", 10 * US))) for n in range(1, 41)]
    report = found_in(tmp_path, calls, transport="TCP")
    assert named(report) == ["server"]
    (finding,) = [one for one in report.findings if one.name == "server"]
    assert finding.title == "score waits for the server, not for its bytes"
    assert finding.cost_s == pytest.approx(20 * (20 * MS - 10 * US) / 1e9) and finding.gain is None
    (evidence,) = finding.evidence
    assert evidence.figure == (
        "share of the time that bytes do not explain (score: 19.990 ms a call; those of ping with as many"
        " bytes take 0.010 ms)"
    )
    assert len(finding.causes) == 1


def test_without_another_method_to_compare_with_the_network_may_be_it(tmp_path) -> None:
    calls = [probed(n, "score", 20 * MS) for n in range(1, 31)]
    (finding,) = found_in(tmp_path, calls, transport="TCP").findings
    assert finding.title == "score waits for the server or the network, not for its bytes"
    assert "no call of as few bytes is fast" in finding.evidence[0].figure
    assert finding.causes[1].startswith("the network: a method that returns at once is as slow then")
    (finding,) = found_in(tmp_path, calls, transport="IPC").findings
    assert finding.title == "score waits for the server, not for its bytes"


def test_some_calls_of_a_method_are_held_against_the_others(tmp_path) -> None:
    calls = [probed(n, "score", 100 * US if n % 5 else 40 * MS) for n in range(1, 51)]
    (finding,) = found_in(tmp_path, calls, transport="TCP").findings
    assert finding.title == "score waits for the server or the network, not for its bytes"
    assert "other calls of it with as many bytes take 0.100 ms" in finding.evidence[0].figure


@pytest.mark.parametrize(("stalls", "is_found"), [(0, False), (1, False), (2, False), (3, True)])
def test_a_stall_or_two_among_fast_calls_is_the_machines(tmp_path, stalls, is_found) -> None:
    calls = [probed(n, "ask", 500 * MS if n <= stalls else 60 * US, 9 + n) for n in range(1, 51)]
    assert named(found_in(tmp_path, calls, transport="TCP")) == ["server"] * is_found


def test_large_arrays_that_cost_by_size_are_the_transports(tmp_path) -> None:
    calls = [
        probed(n, "echo", 100 * US + size * 4 * MS, size * MIB) for n, size in enumerate([0, 1, 2, 8] * 5, 1)
    ]
    report = found_in(tmp_path, calls)
    assert named(report) == ["transport", "half_precision"]
    finding = report.findings[0]
    assert finding.title == "Receive takes 99.1 % of the time, in calls of large arrays"
    assert (finding.least_s, finding.least_gain) == (0.0, 0.0)
    assert finding.cost_s == pytest.approx(5 * 11 * 4e-3)


@pytest.mark.parametrize("wait_us", [60, 900, 9_000])
def test_a_healthy_server_is_no_finding_however_busy_its_cpu(tmp_path, wait_us) -> None:
    """Whoever waits for a CPU waits milliseconds, in any method."""
    calls = [
        probed(n, ("ping", "echo")[n % 2], 60 * US if n % 3 else wait_us * US, (9, 1000)[n % 2])
        for n in range(1, 51)
    ]
    assert named(found_in(tmp_path, calls)) == []


@pytest.mark.parametrize(("took_us", "is_found"), [(200, False), (201, True)])
def test_deserializing_counts_above_a_fifth(tmp_path, took_us, is_found) -> None:
    calls = [probed(1, "ask", (1000 - took_us) * US, deserialize_ns=took_us * US)]
    report = found_in(tmp_path, calls)
    assert named(report) == (["deserialization"] if is_found else [])
    if is_found:
        (finding,) = report.findings
        assert finding.title == "Deserialization takes 20.1 % of the time"
        assert (finding.least_s, finding.cost_s) == (0.0, pytest.approx(201e-6))


def test_and_not_in_calls_that_take_no_time(tmp_path) -> None:
    assert named(found_in(tmp_path, [probed(1, "ask", 50 * US, deserialize_ns=90 * US)])) == []
