"""Sums over collectives, by numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flagscale_perf.analysis.job import open_session
from flagscale_perf.profile.analysis.communication import operations_of
from flagscale_perf.profile.analysis.source import Profile, read_profile
from flagscale_perf.profile.analysis.waits import (
    Bubble,
    Communication,
    Waits,
    bubbles_of,
    lates_of,
    waits_of,
)
from tests.profile_runs import Profiled
from tests.unit.profile.analysis.test_communication import TP, collective, job, message


def test_one_line_for_a_ranks_operations_of_one_sort() -> None:
    """Rank 1 comes 300 late once, rank 0 100 late once; one more operation has only one rank."""
    ranks = job(
        [collective(100, 500), collective(1100, 200, sequence=6), collective(2000, 10, sequence=7)],
        [collective(400, 250), collective(1000, 300, sequence=6)],
    )
    operations = operations_of(ranks)
    zero = Waits(
        rank=0,
        label="TP",
        group=TP,
        operation="all_reduce",
        op="gloo:all_reduce",
        runs=3,
        split=2,
        size_bytes=8000,
        total_ns=700,
        wait_ns=300,
        transfer_ns=400,
        tail_ns=0,
        exposed_ns=700,
        exposed_wait_ns=300,
        lasts=1,
        late_ns=100,
        naive_gb_per_s=8000 / 700,
        algbw_gb_per_s=20.0,
        busbw_gb_per_s=20.0,
    )
    assert waits_of(operations) == [
        zero,
        replace(
            zero,
            rank=1,
            runs=2,
            total_ns=550,
            wait_ns=100,
            tail_ns=50,
            exposed_ns=550,
            exposed_wait_ns=100,
            late_ns=300,
            naive_gb_per_s=8000 / 550,
        ),
    ]
    lates = lates_of(operations, {})
    assert [(late.rank, late.phase, late.module, late.lasts, late.operations) for late in lates] == [
        (1, "forward", "layers.0", 1, 2),
        (0, "forward", "layers.0", 1, 2),
    ]
    assert [(late.late_ns, late.waits_ns, late.alone_ns) for late in lates] == [
        (300, 300, [200]),
        (100, 100, [-200]),
    ]


def test_who_comes_late_because_of_another_is_not_to_blame() -> None:
    """Rank 1 is 300 late to its group; so rank 0, which waits for it, is late to rank 2 in another one."""
    first, second = "TENSOR_MODEL_PARALLEL_GROUP 0-1", "DATA_PARALLEL_GROUP 0/2"
    lates = lates_of(
        operations_of(
            job(
                [collective(100, 500, group=first), collective(700, 100, group=second)],
                [collective(400, 200, group=first)],
                [collective(400, 400, group=second)],
                clocks="aaa",
            )
        ),
        {},
    )
    assert {late.rank: (late.waits_ns, late.alone_ns, late.most_ns) for late in lates} == {
        1: (300, [300], [300]),
        0: (300, [-300], [0]),
    }


def test_several_ranks_that_wait_for_one_lose_the_step_once() -> None:
    group = "TENSOR_MODEL_PARALLEL_GROUP 0-2"
    early = [collective(100, 500, group=group, group_size=3) for _ in range(2)]
    (late,) = lates_of(
        operations_of(
            job(
                *([one] for one in early),
                [collective(400, 200, group=group, group_size=3)],
                clocks="aaa",
            )
        ),
        {},
    )
    assert (late.rank, late.waits_ns, late.alone_ns) == (2, 600, [300])


def test_waiting_that_compute_hides_is_none() -> None:
    """Rank 1 comes 300 late; rank 0 works until 60 before its operation ends."""
    early = {**collective(100, 500), "exposed_ns": 60}
    (late,) = lates_of(operations_of(job([early], [collective(400, 200)])), {})
    assert (late.rank, late.late_ns, late.waits_ns) == (1, 300, 0)


def test_the_bubble_of_two_stages() -> None:
    """Two microbatches of 100 forward and 200 backward, one after the other on each stage: of 900, a stage
    works 600, as (2 - 1) / (2 + 2 - 1) says; stage 0 waits the other third in its receives, stage 1
        100 of it before its first one, and the rest after its last. A message takes 5.
    """
    ranks = job(
        [
            message(100, 5, 1, ordinal=0),
            message(200, 5, 1, ordinal=1),
            message(200, 200, 0),
            message(600, 100, 0, ordinal=1),
        ],
        [
            message(0, 100, 0),
            message(400, 5, 0, ordinal=1),
            message(400, 5, 1),
            message(700, 5, 1, ordinal=1),
        ],
    )
    ranks = [
        type(rank)(rank.rank, rank.clock, {"pipeline": rank.rank, "pipeline_size": 2}, rank.collectives)
        for rank in ranks
    ]
    found = bubbles_of(operations_of(ranks), ranks, {0: [900], 1: [900]})
    assert found == [
        Bubble(0, 0, 2, 1, 900, 300, 5, 20, 2.0, 300 / 900, 1 / 3),
        Bubble(1, 1, 2, 1, 900, 100, 0, 20, 2.0, 100 / 900, 1 / 3),
    ]
    assert [bubble.waiting_share for bubble in found] == [305 / 900, 100 / 900]
    sides = {(waits.rank, waits.op): waits.wait_ns for waits in waits_of(operations_of(ranks))}
    assert sides == {(0, "gloo:recv"): 300, (0, "gloo:send"): 5, (1, "gloo:recv"): 100, (1, "gloo:send"): 0}


def test_a_profile_is_split_as_its_ranks_were_made(profile: Profile) -> None:
    """Rank 1 comes 3 ms late in each of the two steps' first collective (tests/profile_runs.py)."""
    found = Communication(profile)
    assert (found.clocks, found.unsplit) == (1, 0)
    assert [(waits.rank, waits.wait_ns) for waits in found.waits] == [(0, 6_000_000), (1, 0)]
    assert (found.lates[0].rank, found.lates[0].late_ns) == (1, 6_000_000)


def test_a_group_of_one_rank_waits_for_nobody_and_stages_of_a_pipeline_are_late_by_design(
    tmp_path: Path,
) -> None:
    """Two stages of one tensor-parallel rank each: rank 1 comes 5 ms late in a collective of both stages."""
    made = Profiled()
    for rank in (0, 1):
        process = made.rank(rank, tensor=0, tensor_size=1, pipeline=rank, pipeline_size=2)
        made.step(process, 0, 100, 60, 6, 7, 3, 20, 4)
        made.collective(process, 10, 1, group=f"TENSOR_X {rank}", group_size=1, sequence=1, step=2)
        made.collective(process, 40 + 5 * rank, 12 - 5 * rank, group="MODEL_X 0-1", sequence=1, step=2)
    found = Communication(read_profile(open_session(made.write(tmp_path))))
    assert [operation.group for operation in found.operations] == ["MODEL_X 0-1"]
    assert (found.unsplit, found.lates) == (0, [])
    assert [(waits.rank, waits.wait_ns) for waits in found.waits] == [(0, 5_000_000), (1, 0)]


def test_a_job_without_collectives(nothing: Profile) -> None:
    found = Communication(nothing)
    assert (found.operations, found.waits, found.lates, found.bubbles, found.unsplit) == ([], [], [], [], 0)
