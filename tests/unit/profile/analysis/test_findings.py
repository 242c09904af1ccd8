"""What holds the step back."""

from __future__ import annotations

from flagscale_perf.profile.analysis.report import report_of
from flagscale_perf.profile.analysis.source import Profile


def test_nothing_is_said_of_nothing(nothing: Profile) -> None:
    assert report_of(nothing).findings == []
