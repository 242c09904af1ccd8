"""The engine that replays steps, found by its folder."""

from __future__ import annotations

from collections import Counter

from flagscale_perf.analysis import replays
from flagscale_perf.analysis.replays import PathTimes, engine


def test_the_engine_is_there_unless_its_room_is_not(monkeypatch) -> None:
    found = engine()
    assert found is not None
    assert engine() is found
    engine.cache_clear()
    monkeypatch.setattr(replays, "_FILE", "none.py")
    assert engine() is None
    engine.cache_clear()


def test_the_part_of_a_rank_s_work_that_is_on_the_path() -> None:
    path = PathTimes(
        1, {0: 0, 1: 1}, Counter({(0, 1): 30, (None, 3): 10, (1, 2): 60}), Counter({(0, 1): 120})
    )
    assert path.total_ns == 100
    assert (path.part(0), path.part(2)) == (0.25, 0)
