"""Rates: sums over sums, and unknown where a part is unknown."""

from __future__ import annotations

from flagscale_perf.training.rates import Rates, as_gb, mean_ms, per_second, rates_of, tflops, tflops_per_gpu
from flagscale_perf.training.utilisation import Scale, Utilisation
from tests.fakes import SECOND, make_interval


def test_all_rates_of_an_interval() -> None:
    # 40 TFLOP (50 with recomputation), 80 samples and 10240 tokens in 10 steps of 0.1 s on 8 devices of 100
    # TFLOP/s
    assert rates_of(make_interval(), Scale(8, 1e14)) == Rates(
        5.0, 40.0, 80.0, 10240.0, Utilisation(0.05, 0.0625), 100.0
    )


def test_what_is_not_known_is_none_and_nothing_else_is() -> None:
    unknown = Utilisation(None, None)
    assert rates_of(make_interval(model_flops=None), Scale(8, 1e14)) == Rates(
        None, None, 80.0, 10240.0, Utilisation(None, 0.0625), 100.0
    )
    assert rates_of(make_interval(), Scale(None, None)) == Rates(None, 40.0, 80.0, 10240.0, unknown, 100.0)
    assert rates_of(make_interval(), Scale(8, None)) == Rates(5.0, 40.0, 80.0, 10240.0, unknown, 100.0)
    assert rates_of(make_interval(steps=0, iteration_ns=0), Scale(8, 1e14)) == Rates(
        None, None, None, None, unknown, None
    )


def test_the_parts() -> None:
    assert tflops(6 * 10**12, 2 * SECOND) == 3.0
    assert tflops_per_gpu(6 * 10**12, 2 * SECOND, 3) == 1.0
    assert (per_second(10, 4 * SECOND), per_second(None, SECOND), per_second(10, 0)) == (2.5, None, None)
    assert (mean_ms(SECOND, 4), mean_ms(None, 4), mean_ms(SECOND, 0)) == (250.0, None, None)
    assert (as_gb(2_500_000_000), as_gb(None)) == (2.5, None)
