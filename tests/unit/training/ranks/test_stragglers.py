"""Who is named slow, and who is not: on simulated jobs whose numbers are known."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.rank_records import StragglerRecord
from flagscale_perf.training.ranks.blocks import Block
from flagscale_perf.training.ranks.limits import MAX_NAMED
from flagscale_perf.training.ranks.stragglers import Stragglers
from tests.rank_simulator import MS, Job, Noise, Simulation, Slow

EVEN = Noise(step=0.01, hiccup=0.001)
REALISTIC = Noise(step=0.05, heavy=0.01, common=0.01, hiccup=0.001, uneven=0.005)
DRIFTING = Noise(step=0.02, drift=0.02, common=0.02)


def found_in(
    job: Job, rounds: int = 30, noise: Noise = EVEN, slow: tuple[Slow, ...] = (), seed: int = 1, **facts
) -> list[StragglerRecord]:
    return list(look(job, Simulation(job, noise, slow, seed).rounds(rounds), **facts))


def look(job: Job, rounds, **facts) -> Iterator[StragglerRecord]:
    stragglers, who = Stragglers(RunFacts.of(facts)), job.identities()
    for blocks in rounds:
        yield from stragglers.look((who[block.rank], block) for block in blocks)
    yield from stragglers.close()


def test_a_slow_rank_is_named_with_all_that_is_known_of_it() -> None:
    slow = Slow((37,), 0.10, "forward", first=75, last=124, clock_mhz=1400, throttle="power")
    begun, over = found_in(Job(data=64), noise=Noise(), slow=(slow,))
    # 10 ms more than 100 ms of work, 5 ms of reduction, 1 ms of other
    assert begun == StragglerRecord(
        first_iteration=75,
        iteration=89,
        is_over=False,
        ranks=[37],
        hostname="host-4",
        device="NVIDIA H200",
        stage=0,
        phase="forward",
        excess_ns=10 * MS,
        iteration_ns=116 * MS,
        against="peers",
        cause="clock capped by power",
    )
    assert (over.first_iteration, over.iteration, over.is_over, over.ranks, over.excess_ns) == (
        75,
        129,
        True,
        [37],
        10 * MS,
    )


@pytest.mark.parametrize("onset", range(75, 80))
@pytest.mark.parametrize("job", [Job(data=2), Job(data=8), Job(data=64), Job(data=4, stages=2)], ids=str)
def test_a_tenth_is_named_within_20_steps_wherever_in_a_block_it_begins(job: Job, onset: int) -> None:
    begun = found_in(job, rounds=20, slow=(Slow((1,), 0.10, "backward", onset),))[0]
    assert (begun.ranks, begun.phase, begun.against) == ([1], "backward", "peers")
    assert begun.iteration <= onset + 20


def test_one_that_is_slow_from_the_start_is_named_within_20_steps() -> None:
    for job in (Job(data=2), Job(data=16)):
        begun = found_in(job, rounds=3, slow=(Slow((1,), 0.12, "forward", 0),))[0]
        assert (begun.ranks, begun.against, begun.iteration) == ([1], "peers", 19)


def test_a_lockstep_group_that_cannot_be_told_apart_is_named_as_one() -> None:
    begun = found_in(Job(tensor=4, data=8), slow=(Slow((9,), 0.10, "forward", 75),))[0]
    assert (begun.ranks, begun.phase, begun.against) == ([8, 9, 10, 11], "forward", "peers")


def test_outside_of_forward_and_backward_its_members_can_be_told_apart() -> None:
    begun = found_in(Job(tensor=4, data=8), slow=(Slow((9,), 0.10, "optimizer_inner_step", 75),))[0]
    assert (begun.ranks, begun.phase) == ([9], "optimizer_inner_step")


@pytest.mark.parametrize(
    ("job", "ranks"), [(Job(stages=2), [1]), (Job(tensor=2), [0, 1]), (Job(), [0])], ids=str
)
def test_without_peers_ranks_are_compared_with_what_they_were(job: Job, ranks: list[int]) -> None:
    slow = Slow((ranks[-1],), 0.15, "forward", 75, last=119)
    begun, over = found_in(job, slow=(slow,))
    assert (begun.ranks, begun.phase, begun.against, begun.is_over) == (ranks, "forward", "past", False)
    assert begun.iteration <= 95
    assert (over.is_over, over.first_iteration) == (True, begun.first_iteration)


def test_a_slow_data_loader_of_all_ranks_is_told_by_its_phase() -> None:
    begun = found_in(Job(data=8), slow=(Slow(tuple(range(8)), 0.15, "data_loading", 75),))[0]
    assert (begun.ranks, begun.phase, begun.against) == (list(range(8)), "data_loading", "past")


def test_a_stage_with_more_to_do_is_told_once_and_no_slow_rank() -> None:
    found = found_in(Job(data=4, stages=4, heavier={3: 1.2}), rounds=60)
    assert [(each.against, each.stage, each.ranks, each.is_over) for each in found] == [
        ("stages", 3, [12, 13, 14, 15], False),
        ("stages", 3, [12, 13, 14, 15], True),
    ]
    assert (found[0].phase, found[0].iteration) == ("backward", 24)


def test_a_rank_that_stops_between_its_steps_is_named_for_that() -> None:
    begun = found_in(Job(data=8), slow=(Slow((5,), 0.12, "between_steps", 75),))[0]
    assert (begun.ranks, begun.phase) == ([5], "between_steps")


def test_time_in_a_phase_that_may_be_waiting_counts_only_where_others_wait_for_it() -> None:
    """Rank 5 comes first and waits inside `other`, where its peers have their wait elsewhere."""
    job = Job(data=8)

    def moved(blocks: list[Block]) -> list[Block]:
        return [block if block.rank != 5 else with_phase(block, "other", 30 * MS) for block in blocks]

    assert list(look(job, map(moved, Simulation(job, EVEN).rounds(40)))) == []


def with_phase(block: Block, phase: str, dur_ns: int) -> Block:
    assert block.phases_ns is not None
    place = PHASES.index(phase)
    return block._replace(phases_ns=(*block.phases_ns[:place], dur_ns, *block.phases_ns[place + 1 :]))


@pytest.mark.parametrize("noise", [REALISTIC, DRIFTING], ids=["uneven", "drifting"])
@pytest.mark.parametrize("job", [Job(tensor=2, data=2, stages=2), Job(data=32)], ids=str)
def test_ten_thousand_even_steps_give_no_alarm(job: Job, noise: Noise) -> None:
    assert found_in(job, rounds=2000, noise=noise) == []


def test_hiccups_are_no_slow_rank() -> None:
    assert found_in(Job(data=8), rounds=300, noise=Noise(step=0.01, hiccup=0.03)) == []
    bursts = tuple(Slow((3,), 3.0, "forward", first, first + 7) for first in range(75, 1000, 100))
    assert found_in(Job(data=8), rounds=250, slow=bursts) == []


def test_more_micro_batches_are_more_to_do_and_no_alarm() -> None:
    job = Job(data=4)
    later = Simulation(Job(data=4, heavier={0: 2.0}), EVEN).rounds(30, first=31)
    grown = ([block._replace(microbatches=8) for block in blocks] for blocks in later)
    assert list(look(job, itertools.chain(Simulation(job, EVEN).rounds(30), grown))) == []


def test_without_phases_nobody_is_named() -> None:
    job = Job(data=4)
    rounds = Simulation(job, EVEN, (Slow((1,), 0.5, "forward", 50),)).rounds(30)
    assert list(look(job, ([block._replace(phases_ns=None) for block in blocks] for blocks in rounds))) == []


def test_with_experts_those_that_rise_together_are_named_together() -> None:
    slow = (Slow((4, 5), 0.10, "forward", 75),)
    assert found_in(Job(data=16), slow=slow, expert_parallel=2)[0].ranks == [4, 5]
    assert [each.ranks for each in found_in(Job(data=16), slow=slow)[:2]] in ([[4], [5]], [[5], [4]])


def test_the_list_of_ranks_is_bounded() -> None:
    everybody = Slow(tuple(range(100)), 0.2, "forward", 75)
    assert len(found_in(Job(data=100), slow=(everybody,))[0].ranks) == MAX_NAMED.count
