"""Predicted steps against the same pipeline simulated with the change."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.replays import MissingRecordError
from flagscale_perf.whatif.schedules import Shape
from tests.changed_pipelines import MS, pipeline_of, predicted


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


def test_changes_of_both_kinds_compose() -> None:
    late, even = pipeline_of(Shape(4, 8), late_ns=15 * MS), pipeline_of(Shape(4, 16))
    found = predicted(late, "rank=0 forward*=peers backward=peers m=16")
    assert found.predicted_ns == even.run()[1]
    assert (found.kind, found.text.split()[-1]) == ("B", "m=16")
