"""A slow stretch from its begin to its end, and what the device says of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.ranks.blocks import Block
from flagscale_perf.training.ranks.rounds import Seen, round_of
from flagscale_perf.training.ranks.stretches import Found, SlowStretch, Stage, cause_of
from flagscale_perf.training.ranks.work import work_of
from tests.rank_simulator import MS, Job, Noise, Simulation

JOB = Job(data=2)


def stage_after(rounds: int) -> Stage:
    stage, who = Stage(), JOB.identities()
    for blocks in Simulation(JOB, Noise()).rounds(rounds):
        stage.rounds.append(round_of([Seen(who[block.rank], block, work_of(block)) for block in blocks]))
    return stage


def found(**by_phase: int) -> Found:
    return Found([1], 10 * MS, [by_phase.get(phase, 0) for phase in PHASES], "peers", None)


def test_it_begins_with_the_rounds_it_was_found_in() -> None:
    record = stage_after(5).opened(found(forward=10 * MS)).record
    assert (record.first_iteration, record.iteration, record.ranks) == (15, 29, [1])
    assert (record.phase, record.excess_ns, record.is_over, record.cause) == ("forward", 10 * MS, False, None)


def test_a_phase_that_may_be_waiting_is_named_only_where_own_work_explains_too_little() -> None:
    stage = stage_after(3)
    assert stage.opened(found(forward=5 * MS, between_steps=20 * MS)).record.phase == "forward"
    assert stage.opened(found(forward=4 * MS, between_steps=20 * MS)).record.phase == "between_steps"


def test_its_end_has_the_median_excess() -> None:
    first = stage_after(3).opened(found(forward=10 * MS)).record
    stretch = SlowStretch(first)
    stretch.goes_on(24, 12 * MS)
    stretch.goes_on(29, 30 * MS)
    assert stretch.over() == replace(first, iteration=29, is_over=True, excess_ns=12 * MS)


@pytest.mark.parametrize(
    ("clock_mhz", "throttle", "usual_mhz", "cause"),
    [
        (1400, "power, temperature", 1980.0, "clock capped by power and temperature"),
        (1400, "idle", 1980.0, "clock at 1400 MHz instead of 1980 MHz"),
        (1975, "power", 1980.0, None),
        (None, "power", None, "clock capped by power"),
        (None, None, None, None),
    ],
)
def test_a_cap_explains_only_where_the_clock_is_lower(
    clock_mhz: int | None, throttle: str | None, usual_mhz: float | None, cause: str | None
) -> None:
    block = Block(0, 5, 9, 5, 1, 1, None, None, clock_mhz, throttle, None, None)
    assert cause_of([block], usual_mhz) == cause
