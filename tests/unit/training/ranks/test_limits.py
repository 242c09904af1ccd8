"""The limits of slow ranks: each says why it is what it is."""

from __future__ import annotations

from flagscale_perf.analysis.rules import Limit
from flagscale_perf.training.ranks import limits

ALL = {name: limit for name, limit in vars(limits).items() if isinstance(limit, Limit)}


def test_every_limit_has_a_unit_and_a_reason() -> None:
    assert len(ALL) == 16
    assert [name for name, limit in ALL.items() if not limit.unit or len(limit.source) < 30] == []


def test_the_history_of_a_rank_is_longer_than_the_rounds_that_are_judged() -> None:
    assert limits.WINDOW.count < limits.MIN_HISTORY.count < limits.HISTORY.count
    assert limits.STAGE_WINDOW.count < limits.STAGE_ROUNDS.count
