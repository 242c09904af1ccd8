"""Clocks of several machines by the messages of a step."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.replays import NotKnownError
from flagscale_perf.whatif import engine
from flagscale_perf.whatif.replay import Replay
from flagscale_perf.whatif.schedules import Pass, Shape
from tests.timed_pipelines import Pipeline

HOUR_NS = 3600 * 10**9


def pipeline(machines: int, message_ns: int = 400_000) -> Pipeline:
    """Four stages of two ranks; the replicas are beside one another."""

    def pass_ns(stage: int, replica: int, one: Pass) -> int:
        return 10_000_000 + 1_000_000 * stage

    found = Pipeline(Shape(4, 8), 2, pass_ns, message_ns=message_ns)
    found.machine_of = lambda rank: rank * machines // 8
    found.clocks_ns = [number * HOUR_NS for number in range(machines)]
    return found


def begins_of(found: Replay) -> list[int]:
    """Of all ranks, on one clock."""
    return [ns for begin_ns in found.arrangement.begin_ns.values() for ns in begin_ns.ravel().tolist()]


@pytest.mark.parametrize("machines", [1, 2, 4, 8])
def test_all_begin_together_by_the_clocks_that_messages_bring_together(machines: int) -> None:
    """Of eight machines with one rank each, those of a replica have messages, those of a stage have not."""
    own = pipeline(machines)
    (found,) = engine.replays_of(own.layout, own.run()[0]).replays
    begins = begins_of(found)
    assert max(begins) - min(begins) <= 1, "as messages take as long one way as the other"


def test_without_messages_the_exchange_of_gradients_tells() -> None:
    """Each machine has a replica."""
    own = pipeline(2)
    own.machine_of = lambda rank: rank % 2
    (found,) = engine.replays_of(own.layout, own.run()[0]).replays
    assert len({*begins_of(found)}) == 1
    with pytest.raises(NotKnownError, match="clock of machine1 from that of machine0"):
        engine.replays_of(own.layout._replace(strict=frozenset()), own.run()[0])
