"""Every way to start a collective is seen once, with its bytes, on two real ranks."""

from __future__ import annotations

import inspect

import pytest
from torch.distributed import all_gather_object

from tests.gloo_forms import TENSOR
from tests.gloo_ranks import two_ranks

WORLD, GROUP = "default_pg 0-1", f"{TENSOR} 0-1"
REDUCED = ("gloo:all_reduce", "c10d::allreduce_")
FUNCTIONAL = ("gloo:all_reduce", "_c10d_functional::all_reduce")
# Torch 2.15 gathers objects into one tensor, torch 2.13 into a list of them.
INTO_ONE = "all_gather_single" in inspect.unwrap(all_gather_object).__code__.co_names
GATHERED = ("gloo:all_gather", "c10d::_allgather_base_" if INTO_ONE else "c10d::allgather_")
BROADCAST = ("gloo:broadcast", "c10d::broadcast_")

# Executed, called, group and bytes of each operation, on both ranks.
ALIKE = {
    "dist.all_reduce": [(*REDUCED, WORLD, 4096)],
    "async_op=True": [(*REDUCED, WORLD, 4096)],
    "all_gather_into_tensor": [("gloo:all_gather", "c10d::_allgather_base_", GROUP, 8192)],
    "reduce_scatter_tensor": [("gloo:all_reduce", "c10d::_reduce_scatter_base_", GROUP, 4096)],
    # the sizes of both objects, of 8 bytes each, and then the objects
    "all_gather_object": [(*GATHERED, WORLD, 16), (*GATHERED, WORLD, 48)],
    "bound at import": [(*REDUCED, GROUP, 4096)],
    "pg.allreduce": [(*REDUCED, WORLD, 4096)],
    "functional": [(*FUNCTIONAL, GROUP, 4096)],
    "torch.ops._c10d_functional": [(*FUNCTIONAL, GROUP, 4096)],
    # 32 x 32 weights and 32 biases; before, the order of the buckets
    "DDP": [(*BROADCAST, WORLD, 12), (*BROADCAST, WORLD, 4), (*REDUCED, WORLD, 4224)],
    "barrier": [("gloo:barrier", "c10d::barrier", WORLD, 0)],
}
SEND, RECEIVE = ("gloo:send", "c10d::send", 1, 4096), ("gloo:recv", "c10d::recv_", 0, 4096)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    return two_ranks("tests.gloo_forms", tmp_path_factory.mktemp("forms"))


def test_there_are_thirteen_forms(ranks: list[dict]) -> None:
    assert [list(rank) for rank in ranks] == [
        [*list(ALIKE)[:10], "batch_isend_irecv", "send, recv", "barrier"]
    ] * 2


@pytest.mark.parametrize("form", ALIKE)
def test_a_collective_is_counted_once_with_its_bytes(ranks: list[dict], form: str) -> None:
    keys = ("op", "call", "group", "size_bytes")
    for rank in ranks:
        assert [tuple(each[key] for key in keys) for each in rank[form]] == ALIKE[form]
        assert {(each["group_size"], each["peer"], each["is_send"]) for each in rank[form]} == {
            (2, None, None)
        }
    sequences = [[each["sequence"] for each in rank[form]] for rank in ranks]
    assert sequences[0] == sequences[1]
    assert None not in sequences[0]


@pytest.mark.parametrize(
    ("form", "expected"),
    [("batch_isend_irecv", ([SEND, RECEIVE], [SEND, RECEIVE])), ("send, recv", ([SEND], [RECEIVE]))],
)
def test_point_to_point_has_peer_and_bytes(ranks: list[dict], form: str, expected: tuple) -> None:
    for rank, found in enumerate(ranks):
        keys = ("op", "call", "is_send", "size_bytes")
        assert [tuple(each[key] for key in keys) for each in found[form]] == expected[rank]
        assert {each["peer"] for each in found[form]} == {1 - rank}
