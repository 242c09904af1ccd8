"""Rates: sums over sums, and unknown where a part is unknown."""

from __future__ import annotations

from flagscale_perf.training.rates import as_gb, mean_ms, per_device, per_second, per_step, tflops_per_gpu
from tests.fakes import SECOND


def test_a_sum_over_a_sum() -> None:
    assert (per_second(10, 4 * SECOND), per_second(None, SECOND), per_second(10, 0)) == (2.5, None, None)
    assert (per_device(6.0, 3), per_device(None, 3), per_device(6.0, None)) == (2.0, None, None)
    assert (per_step(SECOND, 4), per_step(None, 4), per_step(SECOND, 0)) == (SECOND / 4, None, None)


def test_in_the_units_that_are_shown() -> None:
    assert tflops_per_gpu(6 * 10**12, 2 * SECOND, 3) == 1.0
    assert (tflops_per_gpu(None, SECOND, 3), tflops_per_gpu(10**12, SECOND, None)) == (None, None)
    assert (mean_ms(SECOND, 4), mean_ms(None, 4), mean_ms(SECOND, 0)) == (250.0, None, None)
    assert (as_gb(2_500_000_000), as_gb(None)) == (2.5, None)
