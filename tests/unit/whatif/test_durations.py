"""Durations that are changed: of passes, of single parts, of messages, of some ranks."""

from __future__ import annotations

import numpy as np
import pytest

from flagscale_perf.analysis.replays import Kind, MissingRecordError, Part
from flagscale_perf.whatif.durations import put, sums, turns_of
from flagscale_perf.whatif.schedules import Pass, Shape
from tests.changed_pipelines import MS, pipeline_of, predicted
from tests.timed_pipelines import FORWARD, OTHER, Pipeline

BEFORE, LOADING = Part(Kind.BEFORE, OTHER), Part(Kind.WORK, 9)
PARTS = (
    BEFORE,
    Part(Kind.WORK, FORWARD),
    LOADING,
    Part(Kind.FORWARD, FORWARD),
    BEFORE,
    Part(Kind.FORWARD, FORWARD),
)


def test_a_pass_is_one_turn_whatever_data_is_loaded_in_it() -> None:
    turns = turns_of(PARTS, [FORWARD])
    assert turns is not None
    assert (turns.rows, turns.starts, turns.ends) == ([1, 3, 5], [0, 2], [1, 2])
    loads = turns_of(PARTS, [9])
    assert loads is not None and loads.rows == [2]
    assert turns_of(PARTS, [7]) is None
    lags = np.array([1, 10, 5, 30, 1, 50])[:, None, None]
    assert sums(lags, turns).ravel().tolist() == [40, 50]
    put(lags, turns, np.array([0]), np.array([80.0, 25.0])[:, None, None])
    assert lags.ravel().tolist() == [1, 20, 5, 60, 1, 25]


def test_a_turn_that_took_no_time_gets_it_in_its_last_part() -> None:
    turns = turns_of(PARTS, [FORWARD])
    assert turns is not None
    lags = np.zeros((6, 1, 1), np.int64)
    put(lags, turns, np.array([0]), np.array([7.0, 3.0])[:, None, None])
    assert lags.ravel().tolist() == [0, 0, 0, 7, 0, 3]


@pytest.mark.parametrize(
    ("text", "forward_ms", "backward_ms"),
    [
        ("forward*=0.5", 10, 40),
        ("forward=5ms backward-=10ms", 5, 30),
        ("*ward*=2", 40, 80),
        ("forward+=2500us", 22.5, 40),
        ("backward-=1s", 20, 0),
    ],
)
def test_passes_are_changed_as_they_say(text: str, forward_ms: float, backward_ms: float) -> None:
    shape = Shape(4, 6)

    def pass_ns(stage: int, replica: int, one: Pass) -> int:
        return int((forward_ms if one.is_forward else backward_ms) * MS)

    truth_ns = Pipeline(shape, 2, pass_ns, message_ns=200_000).run()[1]
    assert predicted(pipeline_of(shape), text).predicted_ns == truth_ns


def test_of_a_message_only_the_transfer_is_changed() -> None:
    shape = Shape(4, 6)
    halved = predicted(pipeline_of(shape, message_ns=5 * MS), "p2p*=0.5")
    assert halved.predicted_ns == pipeline_of(shape, message_ns=5 * MS // 2).run()[1]
    assert halved.gain_ns > 0


def test_what_of_a_message_that_passes_beside_computing_is_not_known() -> None:
    pipeline = pipeline_of(Shape(2, 4, 2, 2), message_ns=0)
    pipeline.overlaps = True
    with pytest.raises(MissingRecordError, match="what a message takes: they pass beside computing"):
        predicted(pipeline, "p2p*=0.5")


def test_only_chosen_ranks_and_stages_are_changed() -> None:
    shape = Shape(2, 4)

    def pass_ns(stage: int, replica: int, one: Pass) -> int:
        return (20 if one.is_forward else 40) * MS + 9 * MS * (stage == 1 and replica == 0 and one.is_forward)

    truth_ns = Pipeline(shape, 2, pass_ns, message_ns=200_000).run()[1]
    for text in ("rank=2 forward+=9ms", "stage=1 rank=*0,2 forward+=9ms"):
        assert predicted(pipeline_of(shape), text).predicted_ns == truth_ns


def test_equal_work_is_the_mean_of_a_stage_s_replicas_and_micro_batches() -> None:
    """And never over stages: what one of these does more, it still does."""
    shape = Shape(2, 4)

    def uneven(stage: int, replica: int, one: Pass) -> int:
        more = 8 * (replica == 0) + 4 * (one.batch == 2)  # 5 on average
        return (20 + 15 * stage + more) * MS

    def even(stage: int, replica: int, one: Pass) -> int:
        return (25 + 15 * stage) * MS

    found = predicted(Pipeline(shape, 2, uneven), "work=equal")
    assert found.predicted_ns == Pipeline(shape, 2, even).run()[1]
    assert found.is_gain


def test_ranks_of_one_tensor_parallel_group_are_no_peers_and_change_together() -> None:
    pipeline = pipeline_of(Shape(2, 4), replicas=4)
    drawn_ns = pipeline.pass_ns
    pipeline.pass_ns = lambda stage, replica, one: (
        drawn_ns(stage, replica, one) + 9 * MS * (stage == 0 and replica < 2)
    )
    found = predicted(pipeline, "rank=0 forward=peers backward=peers", tensor_parallel=2)
    assert found.predicted_ns == pipeline_of(Shape(2, 4), replicas=4).run()[1]
