"""Collectives matched over ranks and split, by numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from flagscale_perf.profile.analysis.communication import (
    Members,
    Operation,
    RankCollectives,
    label_of,
    operations_of,
)
from flagscale_perf.profile.operations import Group

TP = "TENSOR_MODEL_PARALLEL_GROUP 0-1"


def collective(start_ns: int, total_ns: int, **changed: Any) -> dict[str, Any]:
    made = {
        "window": 1,
        "step": 2,
        "phase": "forward",
        "module": "layers.0",
        "start_ns": start_ns,
        "total_ns": total_ns,
        "op": "gloo:all_reduce",
        "call": "c10d::allreduce_",
        "group": TP,
        "group_size": 2,
        "sequence": 5,
        "ordinal": 0,
        "peer": None,
        "is_send": None,
        "size_bytes": 4000,
        "exposed_ns": total_ns,
    }
    return made | changed


def message(start_ns: int, total_ns: int, is_send: int, **changed: Any) -> dict[str, Any]:
    op, call = ("gloo:send", "c10d::send") if is_send else ("gloo:recv", "c10d::recv_")
    fields = {"op": op, "call": call, "is_send": is_send, "sequence": None, "group": "PIPELINE_X 0-1"}
    return collective(start_ns, total_ns, **fields | changed)


def job(*ranks: list[dict[str, Any]], clocks: str = "aa", **place: Any) -> list[RankCollectives]:
    return [
        RankCollectives(rank, clock, {"world_size": len(ranks), **place}, found)
        for rank, (found, clock) in enumerate(zip(ranks, clocks, strict=True))
    ]


def waits(operation: Operation) -> list[int | None]:
    return [side.wait_ns for side in operation.sides]


def test_who_comes_first_waits_for_the_last() -> None:
    """Rank 0 comes at 100, rank 1 at 400; rank 0 has its result at 600, rank 1 at 650."""
    [found] = operations_of(job([collective(100, 500)], [collective(400, 250)]))
    assert (found.label, found.operation, found.size, found.size_bytes, found.sequence) == (
        "TP",
        "all_reduce",
        2,
        4000,
        5,
    )
    assert (found.transfer_ns, found.split_by, found.late_ns) == (200, "clock", 300)
    assert [(s.wait_ns, s.tail_ns, s.exposed_wait_ns, s.is_last) for s in found.sides] == [
        (300, 0, 300, False),
        (0, 50, 0, True),
    ]


def test_of_several_clocks_the_shortest_time_is_the_transfer() -> None:
    [found] = operations_of(job([collective(100, 500)], [collective(9_000_400, 250)], clocks="ab"))
    assert (found.transfer_ns, found.split_by, found.late_ns, waits(found)) == (
        250,
        "shortest",
        None,
        [250, 0],
    )


def test_without_all_its_ranks_nothing_is_split() -> None:
    [found] = operations_of(job([collective(100, 500)], []))
    assert (found.transfer_ns, found.split_by, waits(found)) == (None, "", [None])


def test_groups_of_one_name_are_apart_and_a_sequence_is_the_groups_own() -> None:
    other = "TENSOR_MODEL_PARALLEL_GROUP 2-3"
    found = operations_of(
        job(
            [collective(100, 10), collective(200, 10, sequence=6)],
            [collective(100, 10), collective(200, 10, sequence=6)],
            [collective(100, 10, group=other)],
            [collective(100, 10, group=other)],
            clocks="aaaa",
        )
    )
    assert [(each.group, each.sequence, len(each.sides)) for each in found] == [
        (TP, 5, 2),
        (other, 5, 2),
        (TP, 6, 2),
    ]


def test_without_a_sequence_the_ordinal_in_the_window_matches() -> None:
    shm = {"op": "_C::shm_allreduce", "group": "", "sequence": None, "group_size": None}
    ranks = job(
        [collective(100, 10, **shm), collective(200, 10, **shm, ordinal=1, window=8, step=9)],
        [collective(105, 5, **shm), collective(202, 8, **shm, ordinal=1, window=7, step=8)],
    )
    places = [
        RankCollectives(r.rank, r.clock, r.place | {"tensor": r.rank, "tensor_size": 2}, r.collectives)
        for r in ranks
    ]
    found = operations_of(places)
    assert [(each.label, each.size, waits(each)) for each in found] == [("TP", 2, [5, 0]), ("TP", 2, [2, 0])]


def test_a_receiver_that_waits_is_a_bubble_and_a_sender_that_waits_back_pressure() -> None:
    early, late = message(100, 500, 0), message(550, 60, 1)
    held, taken = message(700, 400, 1, ordinal=1), message(1000, 100, 0, ordinal=1)
    first, second = operations_of(job([early, held], [late, taken]))
    assert (first.operation, first.transfer_ns, waits(first)) == ("send_recv", 50, [450, 0])
    assert (second.transfer_ns, waits(second)) == (100, [300, 0])


def test_a_message_that_was_kept_has_the_receivers_time() -> None:
    [found] = operations_of(job([message(100, 20, 1)], [message(500, 30, 0)]))
    assert (found.transfer_ns, waits(found)) == (30, [20, 0])


def test_what_is_hidden_is_the_beginning() -> None:
    """Of a wait of 300 and a transfer of 200, work hides the first 250."""
    [found] = operations_of(
        job([collective(100, 500, exposed_ns=250)], [collective(400, 200, exposed_ns=None)])
    )
    assert [(side.exposed_ns, side.exposed_wait_ns) for side in found.sides] == [(250, 50), (None, None)]


@pytest.mark.parametrize("peer", [1, None])
def test_a_peer_is_the_rank_in_its_group(peer: int | None) -> None:
    group = "PIPELINE_MODEL_PARALLEL_GROUP 0-2/2"
    [found] = operations_of(
        job(
            [message(100, 50, 1, group=group, peer=peer)],
            [],
            [message(100, 50, 0, group=group, peer=None if peer is None else 0)],
            clocks="aaa",
        )
    )
    assert [side.rank for side in found.sides] == [0, 2]
    assert found.transfer_ns == 50


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
        "tensor": tensor,
        "tensor_size": 2,
        "pipeline": pipeline,
        "pipeline_size": 2,
        "data": None,
        "world_size": 4,
    }


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
