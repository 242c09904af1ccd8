"""A recorded step once more: who leaves a collective together, and what a part waits for."""

from __future__ import annotations

import numpy as np
import pytest

from flagscale_perf.analysis.replays import Kind, RankStep
from flagscale_perf.whatif import engine
from flagscale_perf.whatif.replay import Replay
from flagscale_perf.whatif.schedules import Pass, Shape
from tests.timed_pipelines import Pipeline

MESSAGE_NS = 300_000


def replay(pipeline: Pipeline, steps: list[RankStep], **layout: object) -> Replay:
    (found,) = engine.replays_of(pipeline.layout._replace(**layout), steps).replays
    return found


def uneven(shape: Shape, replicas: int = 2) -> Pipeline:
    def pass_ns(stage: int, replica: int, one: Pass) -> int:
        return 10_000_000 + 3_000_000 * stage + 100_000 * replica + 7_000 * one.batch

    return Pipeline(shape, replicas, pass_ns, message_ns=MESSAGE_NS)


@pytest.mark.parametrize("shape", [Shape(3, 5), Shape(3, 6, 2, 3)], ids=str)
def test_a_wait_is_what_it_waits_for_and_a_transfer(shape: Shape) -> None:
    pipeline = uneven(shape)
    found = replay(pipeline, pipeline.run()[0])
    for lane, parts in found.arrangement.graph.parts.items():
        for at, part in enumerate(parts):
            if part.kind is Kind.MESSAGE and part.name != "forward-send-forward-recv":
                lags_ns = found.lags_ns[lane][at]
                assert {*lags_ns.ravel().tolist()} <= {MESSAGE_NS, 10}, (lane, at, part)
    for lane, ends in found.ends(found.lags_ns).items():
        recorded = found.arrangement.begin_ns[lane] + found.arrangement.durs_ns[lane].cumsum(axis=0)
        assert np.array_equal(ends, recorded)


def test_agreement_of_all_is_told_from_that_of_each_replica() -> None:
    """By when they leave it."""
    pipeline = uneven(Shape(2, 4))
    steps, _ = pipeline.run()
    found = replay(pipeline, steps)
    number = next(at for at, one in enumerate(found.arrangement.graph.meetings) if one.name == "agree")
    assert [group.many for group in found.groups[number]] == [1]
    alone = [  # the second replica leaves 50 ms later
        step._replace(durs_ns=[*step.durs_ns[:-2], step.durs_ns[-2] + later_ns, step.durs_ns[-1]])
        for step in steps
        for later_ns in [50_000_000 * (step.rank % 2)]
    ]
    found = replay(pipeline, alone)
    assert [group.many for group in found.groups[number]] == [2]


def test_ranks_of_a_tensor_parallel_group_reduce_with_those_in_their_place() -> None:
    """Ranks 0 and 2 of a stage leave together, and so do ranks 1 and 3, later."""
    pipeline = uneven(Shape(2, 4), replicas=4)
    steps, _ = pipeline.run()
    later = []
    for step in steps:
        durs_ns = list(step.durs_ns)
        sync = next(at for at, part in enumerate(step.parts) if part.name == "sync")
        durs_ns[sync] += 40_000_000 * (step.rank % 2)
        durs_ns[sync + 1] += 40_000_000 * (1 - step.rank % 2)
        later.append(step._replace(durs_ns=durs_ns))
    found = replay(pipeline, later, tensor_parallel=2)
    counts = {
        one.name: [group.many for group in groups]
        for one, groups in zip(found.arrangement.graph.meetings, found.groups, strict=True)
    }
    assert counts == {"sync": [2], "agree": [1]}


def test_a_step_whose_parts_end_before_what_they_wait_for_is_not_sound() -> None:
    pipeline = uneven(Shape(2, 4))
    steps = [*pipeline.run(7)[0], *pipeline.run(8)[0]]
    torn = [
        one._replace(begin_ns=one.begin_ns + 10**10 * ((one.rank, one.iteration) == (0, 8))) for one in steps
    ]
    assert replay(pipeline, torn).is_sound.tolist() == [True, False]
