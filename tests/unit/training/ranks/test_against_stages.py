"""A stage beside the others."""

from __future__ import annotations

from flagscale_perf.training.ranks.against_stages import AgainstStages
from flagscale_perf.training.ranks.rounds import Round, Seen, round_of
from flagscale_perf.training.ranks.work import work_of
from tests.rank_simulator import MS, Job, Noise, Simulation


def rounds_of(job: Job, count: int) -> list[dict[int, Round]]:
    who, rounds = job.identities(), []
    for blocks in Simulation(job, Noise()).rounds(count):
        seen = [Seen(who[block.rank], block, work_of(block)) for block in blocks]
        rounds.append(
            {n: round_of([each for each in seen if each.who.stage == n]) for n in range(job.stages)}
        )
    return rounds


def test_a_heavier_stage_is_found_in_its_fourth_round() -> None:
    split = AgainstStages()
    first, second, third, fourth = (
        split.look(round_) for round_ in rounds_of(Job(stages=3, heavier={1: 1.2}), 5)[1:]
    )
    assert (first, second, third) == (None, None, None)
    assert fourth is not None
    stage, found = fourth
    assert (stage, found.ranks, found.excess_ns, found.against) == (1, [1], 20 * MS, "stages")


def test_it_is_looked_for_in_the_first_rounds_only() -> None:
    split = AgainstStages()
    even, heavy = rounds_of(Job(stages=3), 9)[1:], rounds_of(Job(stages=3, heavier={1: 1.2}), 9)[1:]
    assert [split.look(round_) for round_ in (*even, *heavy)] == [None] * 16


def test_one_stage_has_nothing_to_be_compared_with() -> None:
    assert [AgainstStages().look(round_) for round_ in rounds_of(Job(data=2), 3)] == [None] * 3
