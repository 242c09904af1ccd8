"""What groups are for, and who is in those that nobody names."""

from __future__ import annotations

import pytest

from flagscale_perf.profile.analysis.parallel import Members, label_of
from flagscale_perf.profile.groups import Group


@pytest.mark.parametrize(
    ("group", "label"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP 0-1", "TP"),
        ("PIPELINE_MODEL_PARALLEL_GROUP 0-2/2", "PP"),
        ("DATA_PARALLEL_GROUP_WITH_CP 0-7", "DP"),
        ("EXPERT_MODEL_PARALLEL_GROUP 0-7", "EP"),
        ("CONTEXT_PARALLEL_GROUP 0-1", "CP"),
        ("MODEL_PARALLEL_GROUP 0-3", "TP+PP"),
        ("TENSOR_AND_DATA_PARALLEL_GROUP 0-3", "TP+DP"),
        ("tp:0 0-1", "TP"),
        ("default_pg 0-1", "world"),
        ("group#7 0-1", "group#7"),
    ],
)
def test_labels(group: str, label: str) -> None:
    assert label_of(group) == label


def place(tensor: int, pipeline: int) -> dict[str, int | None]:
    return {
        "tensor": tensor, "tensor_size": 2, "pipeline": pipeline, "pipeline_size": 2, "data": None,
        "world_size": 4,
    }  # fmt: skip


def test_a_group_that_nobody_names_is_that_of_the_ranks_place() -> None:
    members = Members({0: place(0, 0), 1: place(1, 0), 2: place(0, 1), 3: place(1, 1)})
    assert members.group_of(3, "", is_point_to_point=False) == Group("tp", (2, 3))
    assert members.group_of(3, "", is_point_to_point=True) == Group("pp", (1, 3))
    assert members.group_of(3, "X 1,3", is_point_to_point=True) == Group("X", (1, 3))


def test_where_not_all_ranks_were_recorded_they_are_not_known() -> None:
    assert Members({0: place(0, 0)}).group_of(0, "", False) == Group("tp")
    assert Members({0: {"world_size": 2}}).group_of(0, "", True) == Group("world", (0, 1))
    assert Members({}).group_of(0, "", True) == Group("world")


def test_peers() -> None:
    group = Group("PP", (4, 6, 9))
    assert [Members.peer_of(4, group, peer) for peer in (2, None, 7)] == [9, None, None]
    assert Members.peer_of(4, Group("PP", (4, 6)), None) == 6
    assert Members.peer_of(4, Group("PP"), 1) is None
