"""What rank 0 makes of every rank's blocks: all ranks side by side, the slow, silent and dead ones by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flagscale_perf.core.clock import monotonic_ns
from flagscale_perf.core.rank_blocks import Block, RankIdentity
from flagscale_perf.core.records import IntervalRecord, Record


class RanksView:
    """Takes blocks in the order in which they arrive; says what belongs into the run file."""

    def __init__(self, facts: Mapping[str, Any], clock: Callable[[], int] = monotonic_ns) -> None:
        """`facts` of the run header; `clock` for marks and patience."""

    def met(self, identities: Sequence[RankIdentity]) -> list[Record]:
        """Ranks that are there, again or for the first time."""
        return []

    def add(self, block: Block) -> list[Record]:
        """The next block of any rank."""
        return []

    def gone(self, rank: int, iteration: int, why: str) -> list[Record]:
        """A rank's process has ended before its time; `iteration` is its last finished one, `why` a phrase."""
        return []

    def summary_due(self, interval: IntervalRecord) -> list[Record]:
        """Called after each interval of rank 0."""
        return []

    def close(self) -> list[Record]:
        """The run is over: what is still to be said."""
        return []
