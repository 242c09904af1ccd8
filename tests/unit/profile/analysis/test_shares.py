"""Shares of passes, by a profile whose every figure is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.replays import CORE, LAYERS, PYTHON
from flagscale_perf.profile.analysis.shares import shares_of
from tests.profile_runs import make_profile, make_profile_header


def test_of_a_forward_pass_what_is_in_layers(tmp_path: Path) -> None:
    """Of 106 ms forward the embedding takes 4; Python and the engine take 16 of both directions' 182."""
    make_profile().write(tmp_path, make_profile_header())
    found = shares_of(open_session(tmp_path))
    assert found[LAYERS][0] == pytest.approx(102 / 106)
    assert found[CORE] == {0: 0}
    assert found[PYTHON][0] == pytest.approx(16 / 182)
