"""Every threshold of the requirement is shown beside its value, known or not."""

from __future__ import annotations

import pytest

from flagscale_perf.profile.analysis.report import ProfileReport


def test_every_threshold_is_shown_known_or_not(found: ProfileReport) -> None:
    assert [(one.name, one.value, one.verdict) for one in found.verdicts] == [
        ("TP efficiency, at most", pytest.approx(1 - 46 / 404), "excellent"),  # 26 + 20 of 4 steps' 404 ms
        ("PP efficiency, at most", None, None),
        ("P2P", None, None),
        ("memory bandwidth", 10.0, "improve"),
        ("NVLink utilisation", None, None),
    ]
    assert found.verdicts[1].remark == "no pipeline was recorded"
