"""The pipeline that changes ask for, and what is impossible."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.replays import Layout, MissingRecordError
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.whatif.changes import changes
from flagscale_perf.whatif.schedules import Shape
from flagscale_perf.whatif.targets import Target, recorded_target, target_of

FOUR = Shape(4, 8)


def target(text: str, shape: Shape = FOUR, layers: int = 24, replicas: int = 2) -> Target:
    stages = {rank: rank // replicas for rank in range(shape.stages * replicas)}
    places = shape.stages * shape.chunks
    own = [(layers // places,) * shape.chunks] * shape.stages if layers else []
    layout = Layout(stages, {}, "1f1b", shape.chunks, shape.group, layers=own)
    return target_of(layout, recorded_target(layout, shape, replicas), changes([text], {}))


def test_what_is_not_changed_stays() -> None:
    assert target("m=16") == Target(Shape(4, 16), 2, False, (6, 6, 6, 6))
    assert target("pp=2") == Target(Shape(2, 8), 2, False, (12, 12))
    assert target("pp=3 layers=10,8,6") == Target(Shape(3, 8), 2, False, (10, 8, 6))


def test_chunks_and_the_schedule_say_the_same() -> None:
    interleaved = Target(Shape(4, 8, 2, 4), 2, True, (3,) * 8)
    assert target("v=2") == target("schedule=interleaved v=2") == interleaved
    assert target("schedule=1f1b", Shape(4, 8, 2, 4)) == Target(FOUR, 2, False, (6,) * 4)
    assert target("v=2 layers=8,6,6,4").layers == (4, 3, 3, 2, 4, 3, 3, 2)


def test_the_global_batch_stays_where_replicas_are_changed() -> None:
    assert target("dp=4") == Target(Shape(4, 4), 4, False, (6,) * 4)
    assert target("dp=4 m=8").shape.batches == 8
    assert (target("dp=4").samples, target("dp=4").ranks) == (16, 16)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("pp=5", "24 layers do not divide among 5 stages; say how with layers="),
        ("v=5", "24 layers do not divide among 4 stages of 5 chunks"),
        ("layers=6,6,6", "3 numbers for 4 stages"),
        ("layers=6,6,6,4", "22 layers; the model has 24"),
        ("layers=7,5,6,6 v=2", "a stage's layers do not divide among its 2 chunks"),
        ("v=2 m=6", "m=6: an interleaved schedule of 4 stages takes a multiple of 4 micro-batches"),
        ("v=2 m=2", "m=2: an interleaved schedule"),
        ("pp=1 v=2", "v=2: without a pipeline nothing is interleaved"),
        ("schedule=1f1b v=2", "v=2: 1f1b has one chunk on a stage"),
        ("schedule=interleaved", "say how many chunks a stage has, such as v=2"),
        ("m=100000000", "passes is not replayed; at most 100,000 of a replica"),
        ("dp=1000000 m=8", "and 20,000,000 in all"),
        ("dp=3", "dp=3: 16 micro-batches of a step do not divide among 3 replicas; give m=, too"),
    ],
)
def test_what_is_impossible_is_refused(text: str, why: str) -> None:
    with pytest.raises(PerfError, match=why):
        target(text)


def test_without_the_layers_of_each_stage_there_is_no_other_split() -> None:
    assert target("m=4", layers=0).layers == ()
    for text in ("pp=2", "v=2", "layers=1,2,3,4"):
        with pytest.raises(MissingRecordError, match=r"how many layers each stage has.*--num-layers"):
            target(text, layers=0)
