"""Two steps of a rank span by span, and whom a wait is for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flagscale_perf.training.ledger.cuts import CUTS
from flagscale_perf.training.ledger.lanes import PIPE, Lane, Lanes
from flagscale_perf.training.phases import NUMBER_OF, PHASES
from tests.fakes import MS
from tests.pipelines import Schedule


def lanes_of(schedule: Schedule) -> Lanes:
    captured, _ = schedule.run()
    ranks = range(schedule.stages * schedule.replicas)
    lanes = {rank: Lane(*(step for step in captured if step.rank == rank)) for rank in ranks}
    return Lanes(lanes, {rank: rank // schedule.replicas for rank in ranks})


def test_a_lane_has_no_gaps() -> None:
    lane = lanes_of(Schedule(2, 1, batches=4, seed=1)).of[0]
    assert lane.is_timed
    ends = [lane.begin_ns, *(span.end_ns for span in lane.spans)]
    assert [span.start_ns for span in lane.spans] == ends[:-1]
    assert ends[-1] == lane.end_ns


def test_a_step_that_takes_no_time_or_runs_backwards_is_none() -> None:
    """As in a damaged file."""
    captured, _ = Schedule(2, 1, batches=4, seed=1).run()
    before, this = (step for step in captured if step.rank == 0)
    code = 2 * NUMBER_OF["forward-recv"]
    at_once = replace(
        this, start_ns=before.start_ns + before.train_step_ns, train_step_ns=0, marks=[code, 0, code + 1, 0]
    )
    assert not Lane(before, at_once).is_timed
    assert not Lane(before, replace(this, start_ns=before.start_ns)).is_timed


def test_who_worked_until_when() -> None:
    lane = lanes_of(Schedule(2, 1, batches=4, seed=1)).of[0]
    place = lane.of_phase[PHASES.index("backward")][0]
    work = lane.spans[place]
    assert lane.at(work.end_ns) == place
    assert lane.worked_until(work.end_ns) == work.end_ns
    assert lane.worked_until(lane.begin_ns) is None


def test_the_usual_time_is_the_median_of_the_others_of_the_stage() -> None:
    schedule = Schedule(2, 4, batches=2, seed=1)
    for rank, times_ms in enumerate((50, 10, 30, 20)):
        schedule.times[rank, "forward", 1, 1] = times_ms * MS
    lanes = lanes_of(schedule)
    of_rank = {rank: lanes.of[rank].of_phase[PHASES.index("forward")][1] for rank in range(4)}
    assert [lanes.usual_ns(rank, place) / MS for rank, place in of_rank.items()] == [20, 30, 20, 30]
    alone = lanes_of(Schedule(2, 1, batches=2, seed=1))
    assert alone.usual_ns(0, 0) == alone.of[0].spans[0].dur_ns


@pytest.mark.parametrize(
    ("timer", "neighbours"),
    [
        ("forward-recv", [0]),
        ("backward-send", [0]),
        ("backward-send-forward-recv", [0]),
        ("backward-recv", [4]),
        ("forward-send", [4]),
        ("forward-send-backward-recv", [4]),
        ("forward-backward-send-forward-backward-recv", [0, 4]),
    ],
)
def test_messages_come_from_the_same_replica_of_the_stage_beside(timer: str, neighbours: list[int]) -> None:
    lanes = lanes_of(Schedule(3, 2, batches=3, seed=1))
    assert lanes.neighbours(2, NUMBER_OF[timer]) == neighbours


@pytest.mark.parametrize(
    ("phase", "members"), [("exposed_grad_comm", [2, 3]), ("exposed_stat_comm", [0, 1, 2, 3])]
)
def test_who_waits_in_the_same_collective(phase: str, members: list[int]) -> None:
    lanes = lanes_of(Schedule(2, 2, batches=3, seed=1))
    place = next(at for at, each in enumerate(lanes.of[2].spans) if each.phase == PHASES.index(phase))
    found = lanes.members(2, place)
    assert [rank for rank, _ in found] == members
    assert len({lanes.of[rank].spans[at].end_ns for rank, at in found}) == 1
    assert PHASES.index(phase) in CUTS - PIPE


def test_waits_that_do_not_end_together_are_no_collective() -> None:
    lanes = lanes_of(Schedule(2, 2, batches=3, seed=1))
    place = lanes.of[2].of_collective[NUMBER_OF["all-grads-sync"]][0]
    (other,) = lanes.of[3].of_collective[NUMBER_OF["all-grads-sync"]]
    late = lanes.of[3].spans[other]
    lanes.of[3].spans[other] = late._replace(end_ns=late.end_ns + 10**10)
    assert lanes.members(2, place) == [(2, place)]
