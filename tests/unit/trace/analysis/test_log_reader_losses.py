"""What is missing of a trace can be written as JSON."""

from __future__ import annotations

from flagscale_perf.trace.analysis.log_reader import Losses


def test_losses_are_json_ready() -> None:
    assert Losses(repeated=2, lossy={"8", "7"}, lost=1).as_dict() == {
        "repeated": 2,
        "lossy": ["7", "8"],
        "torn": 0,
        "unfinished": 0,
        "dropped": 0,
        "lost": 1,
        "twice": 0,
        "uncertain": [],
        "troubles": [],
    }
