"""A line through times by size."""

from __future__ import annotations

import pytest

from flagscale_perf.bench.analysis.collectives import fit


def test_an_exact_line_is_found() -> None:
    """10 us, and 1 GB/s: a nanosecond a byte."""
    sizes = [1000.0, 10_000.0, 100_000.0, 1_000_000.0]
    found = fit(sizes, [10e-6 + size * 1e-9 for size in sizes])
    assert found is not None
    assert found.alpha_s == pytest.approx(10e-6)
    assert found.beta_bytes_per_s == pytest.approx(1e9)
    assert (found.r2, found.points) == (pytest.approx(1.0), 4)


def test_a_large_message_does_not_decide_alone() -> None:
    """Errors count by their share: 10 % on the largest one moves alpha by little. By hand, with weights
    1/t^2 of t = 1, 2, 3.3: the normal equations give these figures.
    """
    sizes, times = [0.0, 1.0, 2.0], [1.0, 2.0, 3.3]
    weights = [1.0, 0.25, 1 / 3.3**2]
    s0 = sum(weights)
    s1 = weights[1] + 2 * weights[2]
    s2 = weights[1] + 4 * weights[2]
    t0, t1 = 1.0 + 0.5 + 1 / 3.3, 0.5 + 2 / 3.3
    slope = (s0 * t1 - s1 * t0) / (s0 * s2 - s1 * s1)
    found = fit(sizes, times)
    assert found is not None
    assert 1 / found.beta_bytes_per_s == pytest.approx(slope)
    assert found.alpha_s == pytest.approx((t0 - slope * s1) / s0)
    assert 0.99 < found.r2 < 1


@pytest.mark.parametrize(
    ("sizes", "times"),
    [
        ([1.0, 2.0], [1.0, 2.0]),
        ([1.0, 1.0, 2.0], [1.0, 1.0, 2.0]),
        ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]),
        ([1.0, 2.0, 3.0], [0.0, 1.0, 2.0]),
    ],
    ids=["two sizes", "two different sizes", "shrinking", "no time at all"],
)
def test_where_there_is_no_line_there_is_no_figure(sizes: list[float], times: list[float]) -> None:
    assert fit(sizes, times) is None
