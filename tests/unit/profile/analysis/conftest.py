"""The job of `tests.profile_runs`, read once."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.profile.analysis.instrument import report_of
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.profile.analysis.source import Profile, read_profile
from tests.profile_runs import make_profile


@pytest.fixture(name="profile", scope="session")
def _profile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    return read_profile(open_session(make_profile().write(tmp_path_factory.mktemp("profile"))))


@pytest.fixture(name="found", scope="session")
def _found(profile: Profile) -> ProfileReport:
    return report_of(profile)


@pytest.fixture(name="nothing")
def _nothing(tmp_path: Path) -> Profile:
    """A job in which nobody was profiled."""
    from tests.profile_runs import Profiled

    return read_profile(open_session(Profiled().write(tmp_path)))
