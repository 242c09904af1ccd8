"""A stage beside its own past."""

from __future__ import annotations

from flagscale_perf.training.rank_records import StragglerRecord
from flagscale_perf.training.ranks.against_past import AgainstPast
from flagscale_perf.training.ranks.rounds import Seen, round_of
from flagscale_perf.training.ranks.stretches import Stage
from flagscale_perf.training.ranks.work import work_of
from tests.rank_simulator import MS, Job, Noise, Simulation, Slow

JOB = Job()


def after_each_round(rounds: int, *slow: Slow, twice_from: int = 100) -> list[list[StragglerRecord]]:
    past, stage, (who,), records = AgainstPast(), Stage(), JOB.identities(), []
    for number, (block,) in enumerate(Simulation(JOB, Noise(), slow).rounds(rounds)):
        if number >= twice_from:
            block = block._replace(microbatches=2 * block.microbatches + 1)
        stage.rounds.append(round_of([Seen(who, block, work_of(block))]))
        records.append(past.look(stage))
    return [*records, past.close()]


def test_it_rises_after_three_slow_rounds_and_is_over_with_the_run() -> None:
    records = after_each_round(20, Slow((0,), 0.15, "forward", 60))
    (begun,), (over,) = records[13], records[-1]
    assert [number for number, found in enumerate(records) if found] == [13, 20]
    assert (begun.against, begun.phase, begun.excess_ns, begun.first_iteration) == (
        "past",
        "forward",
        15 * MS,
        60,
    )
    assert (over.is_over, over.iteration) == (True, 104)


def test_nine_rounds_are_needed_to_know_a_past() -> None:
    assert [found for found in after_each_round(30, Slow((0,), 0.15, "forward", 10)) if found] == []


def test_another_number_of_micro_batches_begins_a_new_past() -> None:
    assert [
        found for found in after_each_round(20, Slow((0,), 0.15, "forward", 60), twice_from=12) if found
    ] == []
