"""A profiled step in parts, of a profile that can be worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.bench.losses import HOST, OTHER, PRODUCTS, REST, TRANSFER, UNSPLIT, WAIT
from flagscale_perf.bench.serving.attribution import read_steps
from flagscale_perf.spine.errors import PerfError
from tests.profile_runs import make_profile


def test_the_parts_are_the_step(tmp_path: Path) -> None:
    make_profile().write(tmp_path)
    ((phase, step),) = read_steps(tmp_path).items()
    assert phase == "train"
    # Both profiled steps take 202 ms on each rank; rank 0 waits 3 ms in each of 4 collectives.
    assert step.total == pytest.approx(0.101)
    assert step.clean == pytest.approx(0.097)
    # matrix products 120 ms and attention 10 ms in both steps on rank 0; 6 ms more of them on rank 1
    assert step.parts[PRODUCTS] == pytest.approx((130 + 136) / 4 / 1e3)
    assert step.parts[OTHER] == pytest.approx((4 + 6 + 12) / 2 / 1e3)
    assert step.parts[HOST] == pytest.approx((14 + 6) / 2 / 1e3)
    assert step.parts[REST] == pytest.approx(4 / 2 / 1e3)
    communication = step.parts[WAIT] + step.parts[TRANSFER] + step.parts[UNSPLIT]
    assert communication == pytest.approx((26 + 20) / 4 / 1e3)
    assert step.parts[WAIT] == pytest.approx(2 * 3 / 4 / 1e3)
    assert sum(step.parts.values()) == pytest.approx(step.total)


def test_a_directory_without_a_profile(tmp_path: Path) -> None:
    with pytest.raises(PerfError):
        read_steps(tmp_path)
