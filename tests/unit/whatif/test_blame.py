"""The critical path of a step, by hand. test_engine.py holds it against what a step loses."""

from __future__ import annotations

from flagscale_perf.whatif.engine import replays_of
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
