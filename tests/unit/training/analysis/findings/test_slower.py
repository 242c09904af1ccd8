"""Whether, where and by how much the steps of a run take longer than its others."""

from __future__ import annotations

import random

import pytest

from flagscale_perf.training.analysis.findings.anatomy import Anatomy
from flagscale_perf.training.analysis.findings.slower import least_found, slowdown_of
from tests.simulated import Process, simulate


@pytest.mark.parametrize("noise", [0.005, 0.02])
def test_what_would_have_been_found_follows_the_noise(noise: float) -> None:
    chance = random.Random(1)
    times = [chance.gauss(100, 100 * noise) for _ in range(400)]
    assert noise / 2 < least_found(times, []) < 2 * noise + 0.01
    assert least_found([100.0] * 400, []) == 0.0125


def test_the_last_hundredth_of_a_long_run_is_found() -> None:
    """A thousand means of a thousand steps each."""
    process = Process(step_noise=0.003, tail=0.0)
    usual, slow = simulate(1, 1000, process), simulate(1, 1000, process, other=0.04)
    steps = [step._replace(iteration=1000 * step.iteration) for step in [*usual[:990], *slow[990:]]]
    found = slowdown_of(Anatomy(steps))
    assert found is not None
    assert found.span == (pytest.approx(989_001, abs=2_000), 999_000)
    least, most = found.limits
    assert least <= 0.04 <= most
