"""Ranks beside their peers, from round to round."""

from __future__ import annotations

from flagscale_perf.training.rank_records import StragglerRecord
from flagscale_perf.training.ranks.against_peers import AgainstPeers
from flagscale_perf.training.ranks.rounds import Seen, round_of
from flagscale_perf.training.ranks.stretches import Stage
from flagscale_perf.training.ranks.work import work_of
from tests.rank_simulator import MS, Job, Noise, Simulation, Slow


def after_each_round(job: Job, rounds: int, *slow: Slow) -> list[list[StragglerRecord]]:
    peers, stage, who, records = AgainstPeers(is_lockstep_wider=False), Stage(), job.identities(), []
    for blocks in Simulation(job, Noise(), slow).rounds(rounds):
        stage.rounds.append(round_of([Seen(who[block.rank], block, work_of(block)) for block in blocks]))
        records.append(peers.look(stage))
    return records


def test_three_slow_rounds_begin_it_and_two_even_ones_end_it() -> None:
    # the rounds are steps 5 to 9, 10 to 14, ...; the second to the fifth are slow
    records = after_each_round(Job(data=4), 10, Slow((1,), 0.10, "forward", 10, last=29))
    assert [number for number, found in enumerate(records) if found] == [3, 6]
    (begun,), (over,) = records[3], records[6]
    assert (begun.ranks, begun.excess_ns, begun.is_over) == ([1], 10 * MS, False)
    assert (over.ranks, over.iteration, over.is_over) == ([1], 34, True)


def test_one_rank_alone_has_no_peers() -> None:
    assert after_each_round(Job(), 10, Slow((0,), 0.5, "forward", 10)) == [[]] * 10
