"""Calls are summed up by method, in bounded memory, and merged sums are those of all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.rpc.records import Status
from flagscale_perf.rpc.totals import MAX_METHODS, OTHER_METHODS, CallTotals, Totals, tenths
from tests.rpc_sessions import MS, US, make_call


def test_sums_of_all_and_of_each_method() -> None:
    totals = CallTotals()
    for call in (make_call(1), make_call(2, method="Matmul", status=int(Status.FAILED)), make_call(3)):
        totals.add(call)
    overall, methods = totals.overall, totals.methods
    assert (overall.calls, overall.failed, overall.total_ns) == (3, 1, 30 * MS)
    assert overall.stages_ns == [9 * MS, 3 * MS, 6 * MS, 300 * US, 4200 * US, 3 * MS, 3 * MS, 1500 * US]
    assert (overall.sent_bytes, overall.received_bytes, overall.socket_bytes) == (3 << 20, 6 << 20, 9 << 20)
    assert {name: (one.calls, one.failed) for name, one in methods.items()} == {
        "BatchLinear": (2, 0),
        "Matmul": (1, 1),
    }


def test_merged_sums_are_those_of_all() -> None:
    one, other, both = Totals(), Totals(), Totals()
    for call in (make_call(1), make_call(2)):
        one.add(call)
        both.add(call)
    other.add(make_call(3, total_ns=7))
    both.add(make_call(3, total_ns=7))
    one.merge(other)
    assert vars(one) == vars(both)


def test_a_flood_of_names_takes_no_memory() -> None:
    totals = CallTotals()
    for number in range(1000):
        totals.add(make_call(number, method=f"m{number}"))
    assert len(totals.methods) == MAX_METHODS + 1
    assert totals.methods[OTHER_METHODS].calls == 1000 - MAX_METHODS


def test_shares_by_hand() -> None:
    assert tenths([1, 1, 1]) == [0.334, 0.333, 0.333]
    assert tenths([0, 0]) == [0.0, 0.0]
    assert tenths([3, 1]) == [0.75, 0.25]


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=20).filter(any))
def test_shares_add_up(parts) -> None:
    shares = tenths(parts)
    assert round(1000 * sum(shares)) == 1000
    assert all(abs(share - part / sum(parts)) < 0.001 for share, part in zip(shares, parts, strict=True))
