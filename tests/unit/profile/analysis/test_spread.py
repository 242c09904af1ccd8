"""How much of a layer's time may be chance."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.profile.analysis.source import read_profile
from flagscale_perf.profile.analysis.spread import median_within, scatter_of, spread_of
from tests.profile_runs import Profiled


def _spread(directory: Path, profiled: list[int], clean: list[int]) -> float | None:
    job = Profiled()
    process = job.rank(0, 1)
    for place, ms in enumerate(profiled):
        job.step(process, 1000 * place, ms, ms, 0, 0, 0, 0, 0)
    for place, ms in enumerate(clean):
        job.step(process, 1000 * place + 500, ms)
    job.window(process)
    return spread_of(read_profile(job.write(directory)), "train")


def test_the_mean_step_against_the_fastest_one(tmp_path: Path) -> None:
    assert _spread(tmp_path, [100, 100, 130], []) == pytest.approx(0.1)
    assert _spread(tmp_path, [100, 100, 100], [100, 100, 70]) == pytest.approx(0.25)  # 0.95 of 1, less 0.7
    assert _spread(tmp_path, [200, 200, 200], [100, 100, 100]) == 0  # what profiling costs is no spread


def test_few_steps_show_none(tmp_path: Path) -> None:
    assert _spread(tmp_path, [100, 130], [100, 100, 100]) is None


def test_the_others_around_their_median() -> None:
    assert scatter_of([10, 12, 90, 11, 15], 2) == 1.0  # 10, 12, 11, 15: 1.5, 0.5, 0.5 and 3.5 from 11.5


def test_between_which_values_the_median_lies() -> None:
    """That all of 6 are on one side of it happens once in 32; that 9 or 10 of 10 are, 22 times in 1024."""
    assert median_within([3, 1, 2, 6, 5, 4]) == (1, 6)
    assert median_within(range(10)) == (1, 8)
    assert median_within(range(5)) is None
