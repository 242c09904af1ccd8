"""The engine that replays steps, found by its folder."""

from __future__ import annotations

from collections import Counter

from flagscale_perf.analysis import replays
from flagscale_perf.analysis.replays import Cause, PathTimes, engine, together


def test_the_engine_is_there_unless_its_room_is_not(monkeypatch) -> None:
    found = engine()
    assert found is not None
    assert engine() is found
    engine.cache_clear()
    monkeypatch.setattr(replays, "_FILE", "none.py")
    assert engine() is None
    engine.cache_clear()


def test_paths_together_have_all_time_and_a_slope_for_each_rank_and_phase() -> None:
    causes_ns = {(0, 1, Cause.USUAL): 20, (0, 1, Cause.LONGER): 10, (None, 3, Cause.TRANSFER): 10}
    path = PathTimes(1, {0: 0, 1: 1}, Counter(causes_ns), Counter({(0, 1): 60, (1, 1): 20, (None, 3): 5}))
    both = together([path, path])
    assert (both.steps, both.total_ns) == (2, 80)
    assert both.on_ns == {(0, 1): 60, (None, 3): 20}
    assert both.slopes == path.slopes == {(0, 1): 0.5, (1, 1): 0, (None, 3): 2}
