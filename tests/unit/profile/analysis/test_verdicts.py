"""The requirement's thresholds."""

from __future__ import annotations

import pytest

from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.profile.analysis.verdicts import judged


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(0.76, "excellent"), (0.75, "good"), (0.5, "good"), (0.49, "improve"), (None, None)],
)
def test_a_value_equal_to_a_limit_is_good(value: float | None, verdict: str | None) -> None:
    assert judged(value, 0.75, 0.5) == verdict


def test_every_threshold_is_shown_known_or_not(found: ProfileReport) -> None:
    assert [(one.name, one.value, one.verdict) for one in found.verdicts] == [
        ("TP efficiency, at most", pytest.approx(1 - 46 / 404), "excellent"),  # 26 + 20 of 4 steps' 404 ms
        ("PP efficiency, at most", None, None),
        ("P2P", None, None),
        ("memory bandwidth", 10.0, "improve"),
        ("NVLink utilisation", None, None),
    ]
    assert found.verdicts[1].remark == "no pipeline was recorded"
