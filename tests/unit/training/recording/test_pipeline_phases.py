"""Marks of phases on their way through the drain."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from flagscale_perf.spine.ring import Ring
from flagscale_perf.training.marks import STARTS, STOPS, in_slots
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.records import IntervalRecord, PhaseRecord, StepRecord
from tests.fakes import MS
from tests.unit.writer.test_drain import die, finish, make_drain, put, records_in, ring, said

__all__ = ["ring", "said"]  # fixtures

MARKS = (10**8 + 10 * MS + STARTS[0], 10**8 + 30 * MS + STOPS[0])  # of `make_step(1)`, which starts at 100 ms


def with_phases(ring: Ring, iteration: int) -> None:
    """The step n x 100 ms after the clock's zero: 20 ms of the first phase."""
    for record in in_slots(iteration, [mark + (iteration - 1) * 100 * MS for mark in MARKS]):
        ring.put(record)
    put(ring, iteration)


def phases_in(directory: Path) -> list[tuple[int, int | None]]:
    """(iteration, the first phase) of each step of the run file, None for one without phases."""
    records = records_in(directory)
    return [
        (
            record.iteration,
            before[1] if isinstance(before, PhaseRecord) and before.iteration == record.iteration else None,
        )
        for before, record in itertools.pairwise(records)
        if isinstance(record, StepRecord)
    ]


def test_marks_become_phases_before_their_step(ring: Ring, tmp_path: Path, said: list[str]) -> None:
    drain = make_drain(ring, tmp_path, said)
    for iteration in range(1, 11):
        with_phases(ring, iteration)
    finish(ring, drain)
    assert phases_in(tmp_path) == [(iteration, 20 * MS) for iteration in range(1, 11)]
    (interval,) = [record for record in records_in(tmp_path) if isinstance(record, IntervalRecord)]
    assert interval.phases_ns is not None
    assert (interval.phases_ns[PHASES[0]], interval.phases_ns["other"]) == (200 * MS, 700 * MS)


@pytest.mark.parametrize("survives", [True, False])
def test_marks_whose_step_is_not_there_yet_wait_in_the_ring(
    ring: Ring, tmp_path: Path, said: list[str], survives: bool
) -> None:
    drain = make_drain(ring, tmp_path, said)
    with_phases(ring, 1)
    (marks,) = in_slots(2, [mark + 100 * MS for mark in MARKS])
    ring.put(marks)
    assert drain.cycle()
    assert ring.saved == 2
    if not survives:
        die(drain)
        drain = make_drain(ring, tmp_path, said)
    put(ring, 2)
    finish(ring, drain)
    assert phases_in(tmp_path) == [(1, 20 * MS), (2, 20 * MS)]
