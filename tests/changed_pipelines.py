"""Steps of timed pipelines as the engine predicts changes of them."""

from __future__ import annotations

from flagscale_perf.analysis.replays import Prediction, RankStep, Replays
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


LAYER_NS, HEAD_NS = {True: 6 * MS, False: 12 * MS}, {True: 4 * MS, False: 9 * MS}


def layered(shape: Shape, layers: tuple[int, ...], replicas: int = 2, **options: object) -> Pipeline:
    """Layers that are alike and a head on `layers`, those of each chunk in the model's order."""

    def pass_ns(stage: int, replica: int, one: Pass) -> int:
        place, way = one.chunk * shape.stages + stage, one.is_forward
        return layers[place] * LAYER_NS[way] + HEAD_NS[way] * (place == len(layers) - 1)

    return Pipeline(shape, replicas, pass_ns, message_ns=200_000, **options)


def by_stage(shape: Shape, layers: tuple[int, ...]) -> list[list[int]]:
    return [[*layers[stage :: shape.stages]] for stage in range(shape.stages)]


def recorded_replays(pipeline: Pipeline, layers: list[list[int]]) -> Replays:
    """Its recorded steps, whose exchanges of gradients are told."""
    layout = pipeline.layout._replace(phases=NAMES, layers=layers, exchanges=frozenset({SYNC}))
    return replays_of(layout, recorded(pipeline)[0])
