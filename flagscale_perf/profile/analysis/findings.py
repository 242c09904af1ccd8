"""What holds the step back, with what each change would gain by this profile's own rows."""

from __future__ import annotations

from flagscale_perf.profile.analysis.report import ProfileReport


def judge(report: ProfileReport) -> ProfileReport:
    """With its findings, the costliest first."""
    return report
