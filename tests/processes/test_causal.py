"""A delay on the rank that the other one waits for is felt whole; one behind its longer work is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gloo_delays import STEPS
from tests.gloo_ranks import two_ranks

pytestmark = pytest.mark.alone


@pytest.mark.parametrize(("rank", "slope"), [(1, 1.0), (0, 0.0)])
def test_the_slope_of_a_planted_delay(tmp_path: Path, rank: int, slope: float) -> None:
    """Rank 1 computes 90 ms longer than rank 0, so a delay of 40 ms is hidden on rank 0. The interval says
    how sure the slope is on the machine as it was.
    """
    found = two_ranks("tests.gloo_delays", tmp_path, f"rank={rank},module=0,ms=40")
    assert found[1 - rank] is None
    effect = found[rank]
    assert effect["pairs"] == STEPS // 2
    assert effect["slope"] == pytest.approx(slope, abs=0.25)
    assert effect["low"] - 0.1 <= slope <= effect["high"] + 0.1
