"""Costs by bytes, fitted."""

from __future__ import annotations

import pytest

from flagscale_perf.rpc.analysis.costs import CallCost, fit

SIZES = [(0.0, 100.0), (1000.0, 0.0), (1000.0, 3000.0), (5000.0, 100.0), (20.0, 9000.0)]


@pytest.mark.parametrize("cost", [(700, 2, 5), (0, 2, 5), (700, 0, 5), (700, 2, 0), (700, 3, 3), (700, 0, 0)])
def test_costs_that_are_what_they_are_come_out(cost: tuple[float, float, float]) -> None:
    made = CallCost(*map(float, cost))
    measured = {size: [made.fixed_ns + made.of_bytes(*size)] * 3 for size in SIZES}
    assert fit(measured) == pytest.approx(made, abs=1e-6)


def test_one_call_that_took_long_changes_nothing() -> None:
    measured = {size: [10.0 + size[0], 10.0 + size[0], 1e9] for size in SIZES}
    assert fit(measured) == pytest.approx(CallCost(10, 1, 0), abs=1e-6)


def test_no_cost_is_below_nothing() -> None:
    found = fit({(size, 0.0): [1000.0 - size] for size in (100.0, 200.0, 300.0)})  # larger: less
    assert found is not None and found == pytest.approx(CallCost(783.3, 0, 0), abs=0.1)


def test_sizes_that_grow_together_share_their_cost() -> None:
    found = fit({(size, 2 * size): [50.0 + 6 * size] for size in (10.0, 200.0, 3000.0)})
    assert found is not None
    assert (found.fixed_ns, found.of_bytes(100, 200)) == pytest.approx((50, 600), abs=1e-6)


def test_of_few_sizes_nothing_is_known() -> None:
    assert fit({(1.0, 1.0): [5.0] * 100, (2.0, 2.0): [9.0]}) is None
