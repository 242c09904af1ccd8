"""Late ranks while a training lasts: named soon, not twice, over when they are, with what the device says."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from flagscale_perf.training.rank_records import CutsRecord, StragglerRecord
from flagscale_perf.training.ranks.late import LateRanks, median_clock, observed_of, straggler_text
from flagscale_perf.training.ranks.rows import Member, machine_cuts
from tests.fakes import MS
from tests.rank_simulator import Job, Noise, Simulation, Slow
from tests.schedules import FORWARD, noise, steps_of, takes


def named(
    job: Job,
    noise: Noise,
    slow: tuple[Slow, ...] = (),
    rounds: int = 40,
    seed: int = 1,
    late: LateRanks | None = None,
):
    late, found = late or LateRanks(), []
    identities = job.identities()
    for blocks in Simulation(job, noise, slow, seed).rounds(rounds):
        found += late.look(zip(identities, blocks, strict=True))
    cuts = [record for record in found if isinstance(record, CutsRecord)]
    return cuts, [record for record in [*found, *late.close()] if isinstance(record, StragglerRecord)]


def test_a_slow_rank_is_named_within_20_steps_and_is_over() -> None:
    slow = Slow((3,), 0.1, "backward", 62, 141, clock_mhz=1400, throttle="power")
    cuts, (begins, ends) = named(Job(data=8), Noise(step=0.01), (slow,))
    assert len(cuts) == 200
    assert (begins.ranks, begins.phase, begins.against) == ([3], "backward", "peers")
    assert 62 < begins.iteration <= 61 + 20
    assert begins.observed == "clock capped by power"
    assert ends.is_over and ends.identity == begins.identity
    assert 141 <= ends.iteration <= 141 + 20


@pytest.mark.parametrize(("percent", "is_named"), [(1, True), (5, False), (20, False)])
def test_from_which_share_of_a_step_on_is_chosen(percent: int, is_named: bool) -> None:
    slow = Slow((3,), 0.03, "backward", 0)
    _, found = named(Job(data=8), Noise(step=0.002), (slow,), late=LateRanks(percent / 100))
    assert [each.ranks for each in found[:1]] == ([[3]] if is_named else [])


def test_one_of_many_is_named_as_well_and_few_rows_are_kept() -> None:
    cuts, (begins, ends) = named(Job(data=64), Noise(step=0.01), (Slow((40,), 0.1, "forward", 0),))
    assert (begins.ranks, ends.is_over) == ([40], True)
    assert max(len(record.sizes) for record in cuts) < 20


def test_members_of_a_tensor_parallel_group_are_named_together() -> None:
    _, (begins, *_) = named(Job(tensor=2, data=4), Noise(step=0.01), (Slow((4, 5), 0.1, "forward", 0),))
    assert begins.ranks == [4, 5]


def test_ranks_of_every_stage_on_one_machine_are_compared() -> None:
    """The machine sends the cuts of all stages with a block of its last rank, which is of the last stage."""
    identities = [who._replace(stage=who.rank // 2) for who in Job(data=4).identities()]
    late, found = LateRanks(), []
    for number, blocks in enumerate(Simulation(Job(data=4)).rounds(10)):
        slow = steps_of(2, range(5 * number, 5 * number + 5), lambda rank, *_: 20 * MS * (rank == 0))
        cuts = [
            each
            for stage in (0, 1)
            for each in machine_cuts(
                stage, [Member(2 * stage + rank, 2 * stage + rank, slow[rank]) for rank in (0, 1)], True
            )
        ]
        *others, last = (block._replace(cuts=()) for block in blocks)
        found += late.look(zip(identities, [*others, last._replace(cuts=tuple(cuts))], strict=True))
    assert {each.stage for each in found if isinstance(each, CutsRecord)} == {0, 1}
    assert {tuple(each.ranks) for each in found if isinstance(each, StragglerRecord)} == {(0,), (2,)}


def test_even_ranks_are_never_named() -> None:
    for seed, each in enumerate((Noise(step=0.02, drift=0.005, hiccup=0.001), Noise(step=0.05))):
        for ranks in (2, 8, 20):
            assert named(Job(data=ranks), each, rounds=60, seed=seed)[1] == []


@pytest.mark.parametrize(("share", "slower_ms", "cause"), [(1.6, 0, "work"), (1.0, 30, "speed")])
def test_who_has_more_work_is_no_slow_rank_and_says_so(share: float, slower_ms: int, cause: str) -> None:
    """Within its first steps: their work differs, and how long more of it takes can be seen in them."""
    draw, late, found = random.Random(5), LateRanks(work_flops={"tokens": 6e9}), []
    work = {
        (rank, step): (round(4000 * draw.uniform(0.7, 1.3) * (share if rank == 1 else 1)), 1)
        for step in range(50)
        for rank in range(4)
    }
    by_work, uneven = takes(lambda *at: work[at], 4000, 0.4), noise(0.01, 3)

    def extra(*at: int) -> int:
        return by_work(*at) + uneven(*at) + slower_ms * MS * (at[::2] == (1, FORWARD))

    for number, blocks in enumerate(Simulation(Job(data=4)).rounds(10)):
        made = enumerate(steps_of(4, range(5 * number, 5 * number + 5), extra))
        known = (
            [one._replace(work=(work[rank, one.iteration][0], -1, -1, 1)) for one in steps]
            for rank, steps in made
        )
        members = [Member(rank, rank, steps) for rank, steps in enumerate(known)]
        *others, last = (block._replace(cuts=()) for block in blocks)
        cuts = tuple(machine_cuts(0, members, True))
        found += late.look(zip(Job(data=4).identities(), [*others, last._replace(cuts=cuts)], strict=True))
    named = [each for each in found if isinstance(each, StragglerRecord)]
    assert {(tuple(each.ranks), each.cause) for each in named} == {((1,), cause)}
    words = {"work": "than its peers, as it has more work", "speed": "than its peers, at equal work"}
    assert straggler_text(named[0]).endswith(words[cause])


def test_a_clock_is_observed_where_it_is_lower_than_the_others_or_capped() -> None:
    (block, *_), *_ = Simulation(Job(data=2)).rounds(1)
    assert median_clock([]) is None
    assert observed_of([block], 1980) is None
    assert observed_of([block._replace(sm_clock_mhz=1500)], 1980) == "clock at 1500 MHz instead of 1980 MHz"


SLOW = StragglerRecord(
    41,
    55,
    False,
    [37],
    "host-5",
    "NVIDIA H200",
    0,
    "forward",
    31 * MS,
    375 * MS,
    "peers",
    "work",
    "clock capped by power",
)


@pytest.mark.parametrize(
    ("straggler", "text"),
    [
        (
            SLOW,
            (
                "steps 41 to 55 took 9 % longer: rank 37 (host-5, NVIDIA H200) takes 31 ms longer in forward "
                "than its peers, as it has more work; observed: clock capped by power"
            ),
        ),
        (
            replace(
                SLOW,
                ranks=[4, 5],
                excess_ns=int(2.5 * MS),
                iteration_ns=int(102.5 * MS),
                cause=None,
                observed=None,
            ),
            (
                "steps 41 to 55 took 2 % longer: ranks 4, 5 (host-5, NVIDIA H200) take 2.5 ms longer in "
                "forward than their peers"
            ),
        ),
    ],
)
def test_a_straggler_in_one_line(straggler: StragglerRecord, text: str) -> None:
    assert straggler_text(straggler) == text
