"""Predicted steps against the same pipeline simulated with the change."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.replays import MissingRecordError, Prediction, RankStep
from flagscale_perf.whatif.changes import changes
from flagscale_perf.whatif.engine import replays_of
from flagscale_perf.whatif.layer_times import FREE
from flagscale_perf.whatif.schedules import Pass, Shape
from tests.timed_pipelines import (
    BACKWARD,
    BEFORE_NS,
    BETWEEN,
    BETWEEN_NS,
    FORWARD,
    OPTIMIZER,
    PIPE,
    SYNC,
    SYNC_NS,
    TAIL_NS,
    Pipeline,
)

MS = 1_000_000
STEPS = 6
NAMES = {
    "between": (BETWEEN,),
    "forward": (FORWARD,),
    "backward": (BACKWARD,),
    "p2p": (PIPE,),
    "grad_comm": (SYNC,),
    "optimizer": (OPTIMIZER,),
}


def recorded(pipeline: Pipeline, steps: int = STEPS) -> tuple[list[RankStep], int]:
    """So many steps of the same, and how long each takes."""
    ran = [pipeline.run(iteration) for iteration in range(1, steps + 1)]
    return [one for own, _ in ran for one in own], ran[0][1]


def predicted(pipeline: Pipeline, text: str, **layout: object) -> Prediction:
    """Of steps as this pipeline makes them."""
    known = pipeline.layout._replace(phases=NAMES, **layout)
    return replays_of(known, recorded(pipeline)[0]).predict(changes([text], NAMES))


def pipeline_of(shape: Shape, replicas: int = 2, message_ns: int = 200_000, late_ns: int = 0) -> Pipeline:
    """Forward passes of 20, backward of 40 ms; the first replica's are later on stage 0."""

    def pass_ns(stage: int, replica: int, one: Pass) -> int:
        return (20 if one.is_forward else 40) * MS + late_ns * ((stage, replica) == (0, 0))

    return Pipeline(shape, replicas, pass_ns, message_ns=message_ns)


@pytest.mark.parametrize("shape", [Shape(1, 4), Shape(4, 8), Shape(2, 4, 2, 2)], ids=str)
def test_a_late_rank_at_its_peers_speed_is_the_pipeline_without_its_lateness(shape: Shape) -> None:
    late, even = (pipeline_of(shape, late_ns=ns) for ns in (15 * MS, 0))
    found = predicted(late, "rank=0 forward*=peers backward=peers")
    assert found.measured_ns == late.run()[1]
    assert found.predicted_ns == even.run()[1]
    assert found.text == "rank=0 forward=peers rank=0 backward=peers"
    assert found.kind == "A"
    assert found.is_gain


def test_without_peers_there_is_no_number() -> None:
    with pytest.raises(MissingRecordError, match="peers of rank 0: its stage has no other replica"):
        predicted(pipeline_of(Shape(2, 4), replicas=1), "rank=0 forward=peers")


@pytest.mark.parametrize(
    ("shape", "other"),
    [
        (Shape(1, 4), Shape(1, 9)),
        (Shape(2, 4), Shape(2, 4)),
        (Shape(2, 8), Shape(2, 3)),
        (Shape(4, 8), Shape(4, 32)),
        (Shape(4, 2), Shape(4, 8)),
        (Shape(16, 64), Shape(16, 256)),
        (Shape(4, 8, 2, 4), Shape(4, 16, 2, 4)),
        (Shape(3, 6, 4, 3), Shape(3, 12, 4, 3)),
    ],
    ids=str,
)
def test_other_micro_batches_are_the_pipeline_with_as_many(shape: Shape, other: Shape) -> None:
    found = predicted(pipeline_of(shape), f"m={other.batches}")
    assert found.predicted_ns == pipeline_of(other).run()[1]
    assert found.kind == "B"


LAYER_NS, HEAD_NS = {True: 6 * MS, False: 12 * MS}, {True: 4 * MS, False: 9 * MS}


def layered(shape: Shape, layers: tuple[int, ...], replicas: int = 2, **options: object) -> Pipeline:
    """Layers that are alike and a head on `layers`, those of each chunk in the model's order."""

    def pass_ns(stage: int, replica: int, one: Pass) -> int:
        place, way = one.chunk * shape.stages + stage, one.is_forward
        return layers[place] * LAYER_NS[way] + HEAD_NS[way] * (place == len(layers) - 1)

    return Pipeline(shape, replicas, pass_ns, message_ns=200_000, **options)


def by_stage(shape: Shape, layers: tuple[int, ...]) -> list[list[int]]:
    return [[*layers[stage :: shape.stages]] for stage in range(shape.stages)]


@pytest.mark.parametrize(
    ("shape", "layers", "text", "other", "others"),
    [
        (Shape(2, 8), (4, 4), "pp=4", Shape(4, 8), (2, 2, 2, 2)),
        (Shape(2, 8), (4, 4), "pp=8 m=16", Shape(8, 16), (1,) * 8),
        (Shape(4, 8), (2, 2, 2, 2), "pp=2", Shape(2, 8), (4, 4)),
        (Shape(2, 8), (4, 4), "layers=5,3", Shape(2, 8), (5, 3)),
        (Shape(4, 8), (3, 3, 3, 3), "layers=4,4,3,1", Shape(4, 8), (4, 4, 3, 1)),
        (Shape(4, 8), (3, 3, 3, 3), "pp=3 layers=5,4,3 m=5", Shape(3, 5), (5, 4, 3)),
        (Shape(2, 8, 2, 2), (2, 2, 2, 2), "schedule=1f1b", Shape(2, 8), (4, 4)),
        (Shape(2, 8, 2, 2), (2, 2, 2, 2), "v=4", Shape(2, 8, 4, 2), (1,) * 8),
        (Shape(4, 8, 2, 4), (1,) * 8, "pp=2 m=4", Shape(2, 4, 2, 2), (2,) * 4),
    ],
)
def test_other_stages_are_the_pipeline_that_has_them(
    shape: Shape, layers: tuple[int, ...], text: str, other: Shape, others: tuple[int, ...]
) -> None:
    found = predicted(layered(shape, layers), text, layers=by_stage(shape, layers))
    truth_ns = layered(other, others).run()[1]
    assert found.predicted_ns == pytest.approx(truth_ns, abs=5_000), "what the fit rounds"
    assert (found.notes == [FREE]) == (len(layers) == 2)


def test_chunks_are_interleaved_with_messages_beside_computing_as_is_the_host_s_default() -> None:
    shape, other = Shape(2, 8), Shape(2, 8, 2, 2)
    found = predicted(layered(shape, (4, 4)), "schedule=interleaved v=2", layers=[[4], [4]])
    truth_ns = layered(other, (2, 2, 2, 2), overlaps=True).run()[1]
    assert found.predicted_ns == pytest.approx(truth_ns, rel=0.002), "messages take nothing"


@pytest.mark.parametrize(("stages", "batches"), [(2, 8), (4, 16), (16, 64)])
def test_even_stages_take_what_the_closed_form_says(stages: int, batches: int) -> None:
    """(m + p - 1) (f + b)."""
    pipeline = pipeline_of(Shape(2, 4), message_ns=0)
    layers = (stages, stages)
    found = predicted(pipeline, f"pp={stages} m={batches}", layers=[[each] for each in layers])
    each_ns = 60 * MS * 2 // stages + 2 * BEFORE_NS
    assert found.predicted_ns - BETWEEN_NS - TAIL_NS == pytest.approx(
        (batches + stages - 1) * each_ns, abs=9_000
    )


@pytest.mark.parametrize("chunks", [2, 4])
def test_the_bubble_of_interleaved_chunks_is_that_of_the_closed_form(chunks: int) -> None:
    """(p - 1) / (v m) of what is computed."""
    stages, batches, layers = 4, 16, 8
    found = predicted(
        pipeline_of(Shape(stages, batches), message_ns=0), f"v={chunks}", layers=[[layers]] * stages
    )
    computed_ns = batches * 60 * MS
    bubble = (found.predicted_ns - TAIL_NS - computed_ns) / computed_ns
    assert bubble == pytest.approx((stages - 1) / (chunks * batches), rel=0.05)


def test_replicas_share_the_micro_batches_of_the_global_batch() -> None:
    shape = Shape(2, 8)
    found = predicted(pipeline_of(shape, replicas=2), "dp=4", exchanges=frozenset({SYNC}))
    assert found.predicted_ns == pipeline_of(Shape(2, 4), replicas=4).run()[1] + SYNC_NS // 2
    assert (
        predicted(pipeline_of(shape, replicas=4), "dp=2").predicted_ns == pipeline_of(Shape(2, 16)).run()[1]
    )


def test_changes_of_both_kinds_compose() -> None:
    late, even = pipeline_of(Shape(4, 8), late_ns=15 * MS), pipeline_of(Shape(4, 16))
    found = predicted(late, "rank=0 forward*=peers backward=peers m=16")
    assert found.predicted_ns == even.run()[1]
    assert (found.kind, found.text.split()[-1]) == ("B", "m=16")
