"""The requirement's thresholds."""

from __future__ import annotations

import pytest

from flagscale_perf.profile.analysis.verdicts import judged


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(0.76, "excellent"), (0.75, "good"), (0.5, "good"), (0.49, "improve"), (None, None)],
)
def test_a_value_equal_to_a_limit_is_good(value: float | None, verdict: str | None) -> None:
    assert judged(value, 0.75, 0.5) == verdict
