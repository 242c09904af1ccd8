"""What bytes cost, by the calls themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.rpc.analysis.costs import Costs
from flagscale_perf.rpc.analysis.instrument import read_calls
from tests.rpc_sessions import FACTS, US, llama_calls, make_call, write_run


def costs_of(tmp_path, calls, **facts) -> Costs:
    return Costs(read_calls(open_session(write_run(tmp_path, calls, replace(FACTS, **facts)))))


def exactly(value_ns: float, rel: float = 1e-3) -> object:
    return pytest.approx((value_ns, value_ns), rel=rel)


def test_a_byte_less_saves_what_a_byte_of_the_large_calls_costs(tmp_path) -> None:
    costs = costs_of(tmp_path, llama_calls())
    # a byte sent costs 2 ns and one received 1.5, and there are 3328 MB and 3656 MB of them
    assert costs.saved(0, 1e9, 0) == exactly(2e9, 1e-6)
    assert costs.saved(0, 0, 1e9) == exactly(1.5e9, 1e-6)
    assert costs.fixed() == exactly(100 * US)
    assert costs.saved_by_halving() == exactly((3328.02 * 2 + 3656.49 * 1.5) * 2**20 / 2)


def test_what_waking_up_costs_in_earnest_is_no_cost_of_bytes(tmp_path) -> None:
    # Each call waits 0.3 ms more than the handshake's empty ones: twice as many bytes would not wait longer.
    calls = [
        call._replace(wait_ns=call.wait_ns + 300 * US, total_ns=call.total_ns + 300 * US)
        for call in llama_calls()
    ]
    costs = costs_of(tmp_path, calls)
    assert costs.fixed() == exactly(400 * US)
    assert costs.saved_by_halving() == exactly((3328.02 * 2 + 3656.49 * 1.5) * 2**20 / 2)


def test_the_empty_call_is_the_handshakes_or_the_smallest_ones(tmp_path) -> None:
    small = make_call(1, sent_bytes=100, received_bytes=100, queue_ns=0)
    assert costs_of(tmp_path, [small], latency_ns=7900 * US).fixed() == (7900 * US, 8000 * US)
    assert costs_of(tmp_path, [small], latency_ns=None).fixed() == exactly(8000 * US)


def test_an_empty_call_that_explains_an_eightieth_promises_nothing(tmp_path) -> None:
    costs = costs_of(tmp_path, [make_call(1, sent_bytes=100, received_bytes=100)], latency_ns=100 * US)
    assert (costs.fixed(), costs.saved_by_halving()) == (None, None)
    assert costs.unknown[0] == (
        "what changes would gain: what calls and bytes cost explains 0.1 ms of the 8 ms that carrying "
        "them took"
    )


def test_the_interval_is_of_the_quartiles(tmp_path) -> None:
    """0.8, 0.9, 1, 1.1 and 1.2 ms."""
    times = {"serialize_ns": 0, "send_ns": 0, "receive_ns": 0, "deserialize_ns": 0, "sent_bytes": 100}
    calls = [make_call(n, received_bytes=100, wait_ns=(7 + n) * 100 * US, **times) for n in range(1, 6)]
    assert costs_of(tmp_path, calls, latency_ns=None).fixed() == (900 * US, 1100 * US)


def test_calls_that_failed_are_left_out(tmp_path) -> None:
    calls = [make_call(1), make_call(2, status=1, total_ns=10**12, wait_ns=10**12)]
    assert costs_of(tmp_path, calls).saved(0, 1 << 20, 2 << 20) == exactly(7900 * US)
