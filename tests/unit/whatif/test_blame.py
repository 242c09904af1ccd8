"""The critical path of a step, by hand and, as slopes, against the same pipeline with that time planted.
test_engine.py holds it against what a step loses.
"""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.replays import Cause
from flagscale_perf.whatif.engine import Replays, replays_of
from flagscale_perf.whatif.schedules import Pass, Shape
from tests.timed_pipelines import (
    AGREE,
    AGREE_NS,
    BACKWARD,
    BEFORE_NS,
    BETWEEN,
    BETWEEN_NS,
    FORWARD,
    OPTIMIZER,
    OPTIMIZER_NS,
    OTHER,
    PIPE,
    SYNC,
    SYNC_NS,
    Pipeline,
)
from tests.unit.whatif.test_engine import MS, SHAPES, drawn

REPLICAS, STEPS, PLANTED = 2, 4, 1e-4  # of a pass: no more than another path is shorter by


def test_one_micro_batch_there_and_back() -> None:
    """The first stage works, then the second forward and backward, then the first again."""

    def pass_ns(stage: int, replica: int, one: Pass) -> int:
        return (1000 if one.is_forward else 2000) * (stage + 1) * 1000

    pipeline = Pipeline(Shape(2, 1), 1, pass_ns, message_ns=500)
    steps, step_ns = pipeline.run()
    (path,) = replays_of(pipeline.layout, steps).paths()
    on_ns = {
        (0, BETWEEN): BETWEEN_NS,
        (0, OTHER): 2 * BEFORE_NS,
        (0, FORWARD): 1_000_000,
        (0, BACKWARD): 2_000_000,
        (1, OTHER): 2 * BEFORE_NS,
        (1, FORWARD): 2_000_000,
        (1, BACKWARD): 4_000_000,
        (0, OPTIMIZER): OPTIMIZER_NS,
        (None, PIPE): 2 * 500,
        (None, SYNC): SYNC_NS,
        (None, AGREE): AGREE_NS,
    }
    assert sum(on_ns.values()) == step_ns == path.total_ns
    assert dict(path.on_ns) == on_ns
    assert path.own_ns[1, OPTIMIZER] == OPTIMIZER_NS
    assert path.slopes[0, BACKWARD] == 1
    assert path.slopes[1, OPTIMIZER] == 0


def steps_of(shape: Shape, seed: int, rank: int = -1, phase: int = -1) -> tuple[Replays, int]:
    """Some steps, each with times of its own, one rank and phase longer; and how long they take together."""
    steps, total_ns = [], 0
    for iteration in range(STEPS):
        pipeline = drawn(shape, REPLICAS, STEPS * seed + iteration, (-1, -1), 0)
        drawn_ns = pipeline.pass_ns

        def pass_ns(stage: int, replica: int, one: Pass, drawn_ns=drawn_ns) -> int:
            own_ns = drawn_ns(stage, replica, one) + (replica * 7 + stage) * 1013
            is_here = (stage * REPLICAS + replica, one.is_forward) == (rank, phase == FORWARD)
            return round(own_ns * (1 + PLANTED)) if is_here else own_ns

        pipeline.pass_ns, pipeline._parts = pass_ns, {}
        own, step_ns = pipeline.run(iteration)
        steps += [one._replace(begin_ns=one.begin_ns + total_ns) for one in own]
        total_ns += step_ns
    return replays_of(pipeline.layout, steps), total_ns


@pytest.mark.parametrize("shape", [each for each in SHAPES if each.stages <= 4], ids=str)
def test_a_planted_delay_costs_what_the_slope_says(shape: Shape) -> None:
    """Of every rank, forward and backward, within 20 %; what lies on no path costs nothing."""
    replays, total_ns = steps_of(shape, 3)
    slopes, paths = replays.slopes(), replays.paths()
    for rank in range(shape.stages * REPLICAS):
        for phase in (FORWARD, BACKWARD):
            own_ns = sum(path.own_ns[rank, phase] for path in paths)
            longer_ns = steps_of(shape, 3, rank, phase)[1] - total_ns
            worth = longer_ns / (PLANTED * own_ns)
            assert slopes[rank, phase] == pytest.approx(worth, rel=0.2, abs=0.01)
    assert max(slopes[rank, FORWARD] for rank in range(shape.stages * REPLICAS)) > 0.1


def test_a_slower_link_costs_what_the_slope_of_its_messages_says() -> None:
    """Several messages follow one another on the path, more than a rank has in turn: it may be above 1."""
    found = []
    for message_ns in (200_000, 200_002):
        pipeline = drawn(Shape(4, 6), 1, 3, (-1, -1), 0)
        pipeline.message_ns = message_ns
        steps, step_ns = pipeline.run()
        (path,) = (replays := replays_of(pipeline.layout, steps)).paths()
        found.append((step_ns, path.own_ns[None, PIPE], replays.slopes()[None, PIPE]))
    (step_ns, own_ns, slope), (longer_ns, longer_own_ns, _) = found
    assert slope == pytest.approx((longer_ns - step_ns) / (longer_own_ns - own_ns), rel=0.2)


def test_every_cause_on_the_path_and_all_of_them_add_up() -> None:
    """One of three replicas takes 15 ms longer: what the others take is usual, the rest is its own."""
    pipeline = drawn(Shape(2, 4), 3, 2, (1, 2), 15 * MS)
    steps, step_ns = pipeline.run()
    (path,) = replays_of(pipeline.layout, steps).paths()
    late = 1 * 3 + 2
    assert path.total_ns == step_ns
    on_path = path.on_ns[late, FORWARD]
    longer = path.causes_ns[late, FORWARD, Cause.LONGER]
    assert longer and longer % (15 * MS) == 0
    assert path.causes_ns[late, FORWARD, Cause.USUAL] == on_path - longer
    assert all(cause is Cause.TRANSFER for rank, _, cause in path.causes_ns if rank is None)
    assert {rank for rank, _, cause in path.causes_ns if cause is Cause.LONGER} == {late}


def test_a_collective_of_which_it_is_not_known_who_was_in_it_is_waiting() -> None:
    pipeline = Pipeline(Shape(1, 2), 2, lambda stage, replica, one: (20 + 5 * replica) * MS)
    steps, step_ns = pipeline.run()
    apart = [  # the first one leaves it before the other one comes
        one._replace(
            durs_ns=[
                ns - 15 * MS * (part.name == "sync") for part, ns in zip(one.parts, one.durs_ns, strict=True)
            ]
        )
        if one.rank == 0
        else one
        for one in steps
    ]
    layout = pipeline.layout._replace(strict=frozenset())
    (path,) = replays_of(layout, apart).paths()
    assert path.causes_ns[1, SYNC, Cause.WAITS] > 0
    assert path.total_ns == step_ns
    assert (1, SYNC) not in path.own_ns
