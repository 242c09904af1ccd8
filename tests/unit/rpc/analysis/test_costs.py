"""What bytes cost, by the calls themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flagscale_perf.rpc.analysis.costs import Costs
from flagscale_perf.rpc.analysis.report import read_calls
from tests.rpc_sessions import FACTS, US, llama_calls, make_call, write_run


def costs_of(tmp_path, calls, **facts) -> Costs:
    return Costs(read_calls(write_run(tmp_path, calls, replace(FACTS, **facts))))


def test_a_byte_less_saves_what_a_byte_of_the_large_calls_costs(tmp_path) -> None:
    costs = costs_of(tmp_path, llama_calls())
    # a byte sent costs 2 ns and one received 1.5, and there are 3328 MB and 3656 MB of them
    assert costs.saved_by_bytes(1e9, 0) == pytest.approx(2e9, rel=1e-6)
    assert costs.saved_by_bytes(0, 1e9) == pytest.approx(1.5e9, rel=1e-6)
    assert costs.fixed_ns == pytest.approx(100 * US, rel=1e-3)
    assert costs.saved_by_halving() == pytest.approx((3328.02 * 2 + 3656.49 * 1.5) * 2**20 / 2, rel=0.001)


def test_what_waking_up_costs_in_earnest_is_no_cost_of_bytes(tmp_path) -> None:
    # Each call waits 0.3 ms more than the handshake's empty ones: twice as many bytes would not wait longer.
    calls = [call._replace(wait_ns=call.wait_ns + 300 * US, total_ns=call.total_ns + 300 * US)
             for call in llama_calls()]  # fmt: skip
    costs = costs_of(tmp_path, calls)
    assert costs.fixed_ns == pytest.approx(400 * US, rel=1e-3)
    assert costs.saved_by_halving() == pytest.approx((3328.02 * 2 + 3656.49 * 1.5) * 2**20 / 2, rel=0.001)


def test_the_empty_call_is_the_handshakes_or_the_smallest_ones(tmp_path) -> None:
    small = make_call(1, sent_bytes=100, received_bytes=100, queue_ns=0)
    assert costs_of(tmp_path, [small]).fixed_ns == 100 * US
    assert costs_of(tmp_path, [small], latency_ns=None).fixed_ns == 8000 * US
    assert costs_of(tmp_path, [make_call(1)], latency_ns=None).fixed_ns is None


def test_small_calls_say_nothing_about_bytes(tmp_path) -> None:
    costs = costs_of(tmp_path, [make_call(1, sent_bytes=100, received_bytes=100)])
    assert (costs.saved_by_halving(), costs.saved_by_bytes(1000, 0)) == (None, None)


def test_calls_that_failed_are_left_out(tmp_path) -> None:
    calls = [make_call(1), make_call(2, status=1, total_ns=10**12, wait_ns=10**12)]
    assert costs_of(tmp_path, calls).saved_by_bytes(1 << 20, 2 << 20) == pytest.approx(8000 * US - 100 * US)
