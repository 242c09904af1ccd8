"""Recomputing and other sizes of a micro-batch, as a profile tells, against the simulator."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.replays import CORE, LAYERS, PYTHON, MissingRecordError, Prediction
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.whatif.changes import changes
from flagscale_perf.whatif.engine import replays_of
from flagscale_perf.whatif.schedules import Pass, Shape
from tests.changed_pipelines import MS, NAMES, pipeline_of, recorded
from tests.timed_pipelines import Pipeline

SHARES = {LAYERS: {0: 1.0, 1: 0.75}, CORE: {0: 0.25, 1: 0.25}, PYTHON: {0: 0.1, 1: 0.1}}
SHAPE = Shape(2, 8)


def predicted(text: str, pipeline: Pipeline | None = None, **layout: object) -> Prediction:
    made = pipeline or pipeline_of(SHAPE)
    known = made.layout._replace(phases=NAMES, micro_batch=2, **layout)
    return replays_of(known, recorded(made)[0]).predict(changes([text], NAMES), operators=SHARES)


def lasting(shape: Shape, forward_ms: float, backward_ms: tuple[float, float]) -> int:
    def pass_ns(stage: int, replica: int, one: Pass) -> int:
        return int(MS * (forward_ms if one.is_forward else backward_ms[stage]))

    return Pipeline(shape, 2, pass_ns, message_ns=200_000).run()[1]


@pytest.mark.parametrize(
    ("text", "now", "backward_ms"),
    [
        ("recompute=full", "none", (60, 55)),
        ("recompute=selective", "none", (45, 45)),
        ("recompute=none", "full", (20, 25)),
        ("recompute=full", "selective", (55, 50)),
        ("recompute=full", "full", (40, 40)),
    ],
)
def test_a_backward_pass_takes_what_it_computes_again(
    text: str, now: str, backward_ms: tuple[float, float]
) -> None:
    found = predicted(text, recompute=now)
    assert found.predicted_ns == lasting(SHAPE, 20, backward_ms)
    assert found.kind == "C"


def test_in_chunks_each_backward_pass_has_its_own_forward_pass() -> None:
    shape = Shape(2, 4, 2, 2)

    def took_ns(one: Pass) -> int:
        return (10 + 7 * one.chunk + one.batch) * MS

    def pass_ns(stage: int, replica: int, one: Pass) -> int:
        return took_ns(one) if one.is_forward else 40 * MS

    def again_ns(stage: int, replica: int, one: Pass) -> int:
        return took_ns(one) if one.is_forward else int(40 * MS + (1.0, 0.75)[stage] * took_ns(one))

    found = predicted("recompute=full", Pipeline(shape, 2, pass_ns))
    assert found.predicted_ns == Pipeline(shape, 2, again_ns).run()[1]


def test_micro_batches_of_twice_the_samples_are_half_as_many() -> None:
    pipeline = pipeline_of(SHAPE)
    pipeline.message_ns = 0
    found = predicted("mbs=4", pipeline)
    twice = Pipeline(Shape(2, 4), 2, lambda stage, replica, one: int(MS * (38 if one.is_forward else 76)))
    assert found.predicted_ns == twice.run()[1]
    assert found.samples == 1
    assert predicted("mbs=4 m=8", pipeline).samples == 2


def test_the_interval_of_what_operators_do_is_wider() -> None:
    wide, narrow = predicted("recompute=full"), predicted("backward+=20ms")
    assert wide.parts["record"] > 2 * narrow.parts["record"]


@pytest.mark.parametrize("text", ["tp=2", "overlap=on", "cp=2", "ep=2", "seq=4096", "fp8=on"])
def test_what_no_profile_tells_is_refused(text: str) -> None:
    with pytest.raises(MissingRecordError, match=f"how operators behave with {text}"):
        predicted(text)


def test_samples_that_do_not_divide_are_refused() -> None:
    with pytest.raises(PerfError, match="mbs=3: 16 samples of a replica's step are no whole number"):
        predicted("mbs=3")
