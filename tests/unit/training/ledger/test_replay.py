"""A replayed step, against the same schedule simulated without the lateness."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import median

import pytest

from flagscale_perf.training.ledger.lanes import Lane, Lanes
from flagscale_perf.training.ledger.replay import ContradictionError, Replay
from flagscale_perf.training.phases import NUMBER_OF, PHASES
from tests.pipelines import WORK, Schedule


def replay_of(schedule: Schedule) -> tuple[Replay, int]:
    """Of its second step, and how long that is."""
    captured, step_ns = schedule.run()
    ranks = schedule.stages * schedule.replicas
    by_rank = [[step for step in captured if step.rank == rank] for rank in range(ranks)]
    lanes = {rank: Lane(*steps) for rank, steps in enumerate(by_rank)}
    return Replay(Lanes(lanes, {rank: rank // schedule.replicas for rank in range(ranks)})), step_ns


def even(schedule: Schedule, late: int, phase: str) -> None:
    """The rank takes as long there as the others of its stage."""
    first = late // schedule.replicas * schedule.replicas
    others = [rank for rank in range(first, first + schedule.replicas) if rank != late]
    for rank, name, step, batch in list(schedule.times):
        if (rank, name, step) == (late, phase, 1):
            times = [schedule.times[other, name, step, batch] for other in others]
            schedule.times[rank, name, step, batch] = int(median(times))


@pytest.mark.parametrize("is_nested", [False, True], ids=["plain", "nested"])
@pytest.mark.parametrize("has_room", [True, False], ids=["sent-at-once", "sent-when-received"])
@pytest.mark.parametrize("phase", WORK)
@pytest.mark.parametrize("seed", range(20))
def test_the_gain_is_that_of_the_schedule_without_the_lateness(
    seed: int, phase: str, has_room: bool, is_nested: bool
) -> None:
    """To the nanosecond, whether a rank is on the critical path, beside it, or on it for a part."""
    shape = {"stages": 2 + seed % 3, "replicas": 2 + seed % 2, "batches": 3 + seed % 6, "seed": seed}
    schedule = Schedule(**shape, least_ms=2, has_room=has_room, is_nested=is_nested)
    replay, step_ns = replay_of(schedule)
    late = random.Random(seed).randrange(schedule.stages * schedule.replicas)
    even(schedule, late, phase)
    assert replay.gain_ns((late,), PHASES.index(phase)) == step_ns - schedule.run()[1]


@pytest.mark.parametrize("seed", range(12))
def test_ends_of_collectives_that_are_some_microseconds_apart(seed: int) -> None:
    schedule = Schedule(4, 3, batches=8, seed=seed, least_ms=95, heavy=seed % 5)
    even_ns, late = schedule.run()[1], random.Random(seed).randrange(12)
    for (rank, phase, step, batch), dur_ns in schedule.times.items():
        if (rank, phase) == (late, "backward"):
            schedule.times[rank, phase, step, batch] = dur_ns * 4 // 3
    schedule.jitter_ns = 600_000
    replay, step_ns = replay_of(schedule)
    gain_ns = replay.gain_ns((late,), PHASES.index("backward"))
    assert gain_ns == pytest.approx(step_ns - even_ns, abs=0.02 * step_ns)
    assert gain_ns > 0.05 * step_ns or seed % 5 != late // 3, "in the heavy stage it costs something"


def test_a_message_that_comes_before_it_is_made_is_no_step() -> None:
    """As where the clocks of two ranks differ."""
    captured, _ = Schedule(2, 1, batches=3, seed=1).run()
    later = [replace(step, start_ns=step.start_ns + 10**10 * (step.rank == 0)) for step in captured]
    lanes = {rank: Lane(*(step for step in later if step.rank == rank)) for rank in range(2)}
    with pytest.raises(ContradictionError, match="ends before what it is for"):
        Replay(Lanes(lanes, {0: 0, 1: 1}))


def test_a_last_mark_at_the_end_of_the_step_before_is_of_that_step() -> None:
    """As in a damaged file: a collective that takes no time, when the next step's time begins."""
    schedule = Schedule(2, 2, batches=3, seed=1)
    captured, _ = schedule.run()
    code = 2 * NUMBER_OF["all-grads-sync"]
    first = next(step for step in captured if (step.rank, step.iteration) == (0, 7))
    left_ns = first.train_step_ns - sum(first.marks[1::2])
    first.marks[-2:] = [first.marks[-2], first.marks[-1], code, left_ns, code + 1, 0]
    lanes = {rank: Lane(*(step for step in captured if step.rank == rank)) for rank in range(4)}
    Replay(Lanes(lanes, {0: 0, 1: 0, 2: 1, 3: 1}))
