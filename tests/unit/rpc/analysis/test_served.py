"""The server's own records."""

from __future__ import annotations

from flagscale_perf.rpc.analysis.served import Served
from flagscale_perf.rpc.totals import MAX_METHODS
from tests.rpc_sessions import MS, US, make_served


def test_parts_add_up_to_the_call() -> None:
    served = Served()
    served.add(make_served(1))
    served.add(make_served(2, status=4))
    totals = served.methods["BatchLinear"]
    assert (totals.calls, totals.failed, totals.total_ns) == (2, 1, 3 * MS)
    assert totals.parts_ns == [200 * US, 200 * US, 2 * MS, 200 * US, 400 * US, 0]


def test_a_flood_of_names_takes_no_memory() -> None:
    served = Served()
    for number in range(1000):
        served.add(make_served(number, method=f"m{number}"))
    assert len(served.methods) == MAX_METHODS + 1
