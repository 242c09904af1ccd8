"""One round of a stage, and what is usual for each of its ranks."""

from __future__ import annotations

import pytest

from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.ranks.blocks import Block, RankIdentity
from flagscale_perf.training.ranks.rounds import Seen, groups_of, median_clock, round_of, usual_of_others
from flagscale_perf.training.ranks.work import Work

FORWARD = PHASES.index("forward")


def seen(rank: int, own_ns: int, lockstep: int = 0, clock_mhz: int | None = None) -> Seen:
    phases = tuple(own_ns if place == FORWARD else None for place in range(len(PHASES)))
    block = Block(rank, 5, 9, 5, 1, 100 + rank, phases, None, clock_mhz, None, None, None)
    who = RankIdentity(rank, "node", 1000 + rank, "NVIDIA H200", None, 0, lockstep)
    return Seen(who, block, Work(own_ns, 0, 0, None))


def test_of_two_ranks_the_quicker_one_is_the_usual_one() -> None:
    """One slow rank of two must not make the stage slow."""
    found = round_of([seen(0, 10, clock_mhz=1900), seen(1, 90)])
    assert (found.work, found.phases_ns[FORWARD], found.clock_mhz) == (Work(10, 0, 0, None), 10, 1900)
    assert (found.iteration_ns, sorted(found.seen)) == (100, [0, 1])


def test_a_phase_that_the_host_does_not_name_takes_no_time() -> None:
    assert [seen(0, 10).phase_ns(place) for place in (FORWARD, FORWARD + 1)] == [10, 0]


def test_a_clock_is_the_median_of_the_readings() -> None:
    blocks = [seen(rank, 1, clock_mhz=clock).block for rank, clock in enumerate((1980, None, 1400, 1900))]
    assert median_clock(blocks) == 1900
    assert median_clock([seen(0, 1).block]) is None


@pytest.mark.parametrize(
    ("lockstep", "groups"),
    [([0, 0, 1, 1], {0: [0, 1], 1: [2, 3]}), ([7, 7, 7, 7], {0: [0], 1: [1], 2: [2], 3: [3]})],
)
def test_ranks_in_lockstep_are_a_group_unless_there_is_only_one(lockstep, groups) -> None:
    found = groups_of(round_of([seen(rank, 1, group) for rank, group in enumerate(lockstep)]))
    assert {key: [each.who.rank for each in members] for key, members in found.items()} == groups


def test_what_is_usual_leaves_out_the_rank_s_own_group() -> None:
    found = groups_of(round_of([seen(0, 10), seen(1, 20), seen(2, 90)]))
    assert {rank: work.own_ns for rank, work in usual_of_others(found).items()} == {0: 55, 1: 50, 2: 15}
    pairs = groups_of(round_of([seen(0, 10, 0), seen(1, 30, 0), seen(2, 90, 1), seen(3, 90, 1)]))
    assert {rank: work.own_ns for rank, work in usual_of_others(pairs).items()} == {
        0: 90,
        1: 90,
        2: 20,
        3: 20,
    }


def test_one_group_has_no_others() -> None:
    assert usual_of_others(groups_of(round_of([seen(0, 10)]))) == {}
