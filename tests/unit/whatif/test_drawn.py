"""A captured step drawn as it was and as it is predicted, against the same pipeline with the change."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.replays import RankStep
from flagscale_perf.whatif.changes import changes
from flagscale_perf.whatif.engine import replays_of
from flagscale_perf.whatif.schedules import Shape
from tests.changed_pipelines import MS, NAMES, pipeline_of


@pytest.mark.parametrize(
    ("text", "batches", "late_ns"),
    [("rank=0 forward=peers backward=peers", 8, 0), ("m=16", 16, 15 * MS)],
    ids=["same graph", "another graph"],
)
def test_every_part_ends_as_in_the_pipeline_with_the_change(text: str, batches: int, late_ns: int) -> None:
    recorded = pipeline_of(Shape(4, 8), late_ns=15 * MS)
    steps, step_ns = recorded.run()
    other, other_ns = pipeline_of(Shape(4, batches), late_ns=late_ns).run()
    found = replays_of(recorded.layout._replace(phases=NAMES), steps).drawn(changes([text], NAMES))
    for is_predicted, expected, whole_ns in ((False, steps, step_ns), (True, other, other_ns)):
        own = {one.rank: one for one in found if one.is_predicted is is_predicted}
        assert own.keys() == {one.rank for one in expected}
        for step in expected:
            drawn = own[step.rank]
            assert drawn.parts == step.parts
            assert [at - drawn.begin_ns for at in drawn.ends_ns] == ends_of(step)
        assert max(drawn.ends_ns[-1] - drawn.begin_ns for drawn in own.values()) == whole_ns


def ends_of(step: RankStep) -> list[int]:
    ends, at_ns = [], 0
    for dur_ns in step.durs_ns:
        at_ns += dur_ns
        ends.append(at_ns)
    return ends
