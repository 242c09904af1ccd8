"""Predicted steps against the same pipeline simulated with the change."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.replays import MissingRecordError, Prediction, RankStep
from flagscale_perf.whatif.changes import changes
from flagscale_perf.whatif.engine import replays_of
from flagscale_perf.whatif.schedules import Pass, Shape
from tests.timed_pipelines import BACKWARD, BETWEEN, FORWARD, OPTIMIZER, PIPE, SYNC, Pipeline

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
