"""Calls as a flow: its lanes, and what of a saving the session gains."""

from __future__ import annotations

import pytest

from flagscale_perf.rpc.analysis.flow import NAMES, flow_of, gained
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.whatif.flows import ends_of, made_of
from tests.rpc_sessions import MS, llama_calls, make_call


def crowded(callers: int = 3, rounds: int = 10, server_ms: int = 50) -> list[CallRecord]:
    """Callers who each send for 10 ms, and wait for a server with one thread, which is always busy."""
    free_ms, found, at_ms = 0, list[CallRecord](), [0] * callers
    for _ in range(rounds):
        for caller in range(callers):
            sent = at_ms[caller] + 10
            begin = max(sent, free_ms)
            free_ms = begin + server_ms
            found.append(
                make_call(
                    len(found) + 1,
                    start_ns=at_ms[caller] * MS,
                    total_ns=(free_ms - at_ms[caller]) * MS,
                    serialize_ns=0,
                    send_ns=10 * MS,
                    wait_ns=0,
                    queue_ns=(begin - sent) * MS,
                    server_ns=server_ms * MS,
                    receive_ns=0,
                    deserialize_ns=0,
                )
            )
            at_ms[caller] = free_ms
    return found


def test_callers_and_the_one_thread_of_a_server_have_a_lane_each() -> None:
    flow = flow_of(crowded(), True, "").flow
    assert [len(lane) for lane in flow.lanes] == [70, 70, 70, 90]
    made = made_of(flow)
    assert ends_of(made)[3][-1] == flow.lanes[3][-1].end_ns
    queue = sum(
        lag
        for one, lag in zip(flow.lanes[3], made.lags_ns[3], strict=True)
        if one.phase == NAMES.index("queue")
    )
    assert queue == 0  # what calls queued behind is the calls before them


def test_of_what_a_busy_servers_callers_save_nothing_is_gained_and_of_one_caller_all() -> None:
    assert gained(crowded()) == pytest.approx(5 / 150)  # the first call's, before the server is busy
    assert gained(crowded(callers=1)) == pytest.approx(1)
    assert gained(llama_calls()) == pytest.approx(1)
    assert gained([]) is None


def test_calls_without_starts_follow_one_another() -> None:
    calls = [make_call(number, start_ns=0) for number in range(1, 11)]
    flow = flow_of(calls, False, "").flow
    assert flow.lanes[0][-1].end_ns == 100 * MS


@pytest.mark.parametrize("wrong", [{"wait_ns": 9 * MS}, {"server_ns": 10**12}, {"receive_ns": 10**12}])
def test_stages_that_say_more_than_the_call_took_change_nothing(wrong: dict[str, int]) -> None:
    calls = [make_call(number, **(wrong if number == 3 else {})) for number in range(1, 11)]
    flow = flow_of(calls, True, "").flow
    assert max(flow.lanes[lane][at].end_ns for lane, at in flow.units) == 110 * MS
    assert all(lag >= 0 for own in made_of(flow).lags_ns for lag in own)
