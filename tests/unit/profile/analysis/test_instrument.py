"""What the commands call for a profile."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.cli.instruments import instrument_for
from flagscale_perf.profile.analysis.instrument import INSTRUMENT
from tests.profile_runs import make_profile


def test_a_profiles_run_file_is_known_and_reported(tmp_path: Path) -> None:
    path = make_profile().write(tmp_path)
    assert instrument_for(path) is INSTRUMENT
    assert INSTRUMENT.report(path).subject == "GPTModel, megatron, 2 ranks, 2 train steps on node0"
