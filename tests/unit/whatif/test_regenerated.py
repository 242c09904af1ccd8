"""Recorded durations in another graph, against that pipeline simulated."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.replays import MissingRecordError
from flagscale_perf.whatif.changes import changes
from flagscale_perf.whatif.layer_times import FREE
from flagscale_perf.whatif.schedules import Shape
from tests.changed_pipelines import MS, NAMES, by_stage, layered, pipeline_of, predicted, recorded_replays
from tests.timed_pipelines import BEFORE_NS, BETWEEN_NS, SYNC, SYNC_NS, TAIL_NS


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
    assert (FREE in found.notes) == (len(layers) == 2)


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
    truth_ns = pipeline_of(Shape(2, 4), replicas=4).run()[1] + SYNC_NS // 2  # 3/4 round a ring, not 1/2
    assert found.predicted_ns == pytest.approx(truth_ns, abs=2)
    assert (
        predicted(pipeline_of(shape, replicas=4), "dp=2").predicted_ns == pipeline_of(Shape(2, 16)).run()[1]
    )


def test_a_second_layout_tells_what_the_first_cannot() -> None:
    """What a layer, a message and an exchange of gradients take, of a run that has one stage and replica."""
    alone = recorded_replays(layered(Shape(1, 8), (8,), replicas=1), [[8]])
    uneven = [
        recorded_replays(layered(Shape(2, 8), layers), [[each] for each in layers])
        for layers in ((5, 3), (3, 5))
    ]
    for text, what in (("pp=2", "one layer"), ("dp=2", "an exchange of gradients")):
        with pytest.raises(MissingRecordError, match=f"{what}.*--with RUN"):
            alone.predict(changes([text], NAMES))
    found = alone.predict(changes(["pp=4 dp=2 m=8"], NAMES), beside=uneven)
    truth_ns = layered(Shape(4, 8), (2,) * 4).run()[1]
    assert found.predicted_ns == pytest.approx(truth_ns, rel=0.01)
    assert FREE not in found.notes
