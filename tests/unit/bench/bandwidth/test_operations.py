"""Collectives: what they move and how it is checked, on one rank and on a group of 1024 that is not there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from flagscale_perf.bench.bandwidth.operations import COLLECTIVES, EXECUTED, World, message
from flagscale_perf.profile.operations import buffer_bytes, bus_factor

RANKS = 1024


@pytest.fixture
def world() -> Iterator[World]:
    """Rank 3 of 1024: every call returns at once and moves nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=3, world_size=RANKS)
    yield World(torch, dist, 3, RANKS, "cpu")
    dist.destroy_process_group()


SHARE, WHOLE = 4 << 10, 4 << 20


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_size_is_the_whole_buffer_on_1024_ranks(world: World, name: str) -> None:
    operation = COLLECTIVES[name](world, 1 << 20)  # 4 MiB of float32
    operation.run()
    sizes = {"all_gather": (SHARE, WHOLE), "reduce_scatter": (WHOLE, SHARE)}.get(name, (WHOLE, WHOLE))
    assert (operation.given_bytes, operation.made_bytes) == sizes
    assert buffer_bytes(name, *sizes, RANKS) == WHOLE


def test_what_is_not_a_multiple_of_the_ranks_is_cut(world: World) -> None:
    operation = COLLECTIVES["all_gather"](world, RANKS + 5)
    assert (operation.given_bytes, operation.made_bytes) == (4, 4 * RANKS)


def test_bus_factors_of_1024_ranks() -> None:
    factors = {name: bus_factor(name, RANKS) for name in COLLECTIVES}
    most = 1023 / 1024
    assert factors == {
        "all_reduce": 2 * most,
        "all_gather": most,
        "reduce_scatter": most,
        "all_to_all": most,
    }
    assert EXECUTED["gloo", "reduce_scatter"] == "all_reduce"


def test_data_that_did_not_arrive_is_seen(world: World) -> None:
    """A fake group moves nothing, so no rank has what it should."""
    for name, make in COLLECTIVES.items():
        operation = make(world, RANKS)
        operation.run()
        assert not operation.is_right(), name


def test_a_message_is_checked_by_who_receives(world: World) -> None:
    there, back = message(world, 16, (3, 9), False), message(world, 16, (9, 3), False)
    assert (there.is_right(), back.is_right()) == (True, False)
    assert there.given_bytes == 64
