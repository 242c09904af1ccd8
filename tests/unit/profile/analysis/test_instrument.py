"""What the commands call for a profile."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.instrument import load
from flagscale_perf.analysis.job import open_session
from flagscale_perf.profile.analysis.instrument import INSTRUMENT
from tests.profile_runs import make_profile


def test_a_profiles_run_file_is_known_and_reported(tmp_path: Path) -> None:
    path = make_profile().write(tmp_path)
    session = open_session(path)
    assert load(session.instrument) is INSTRUMENT
    assert INSTRUMENT.report(session).subject == "GPTModel, megatron, 2 ranks, 2 train steps on node0"
