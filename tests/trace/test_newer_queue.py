"""What versions of the queue after the one that is installed do otherwise, planted into the real one:
requests that are made again, transports of their own, updates; and names that no version has.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from transfer_queue import client as client_module
from transfer_queue.storage.managers import simple_storage_manager as manager_module

from flagscale_perf.hosts.transfer_queue import adapter
from flagscale_perf.spine.records import EventRecord
from flagscale_perf.trace.analysis.transfers import pairs_of
from flagscale_perf.trace.records import Kind, OperationRecord, UnitsRecord
from tests.trace.tracing import Kept, traced

MANAGER = manager_module.AsyncSimpleStorageManager
PLANTED_NS = 200_000_000
SLACK_NS = 10_000_000  # of a clock read beside a sleep


def batch(rows: int = 8) -> TensorDict:
    return TensorDict({"prompt": torch.arange(rows * 2).reshape(rows, 2)}, batch_size=rows)


def one(kept: Kept) -> OperationRecord:
    (operation,) = kept.of(OperationRecord)
    return operation


def waits_of(kept: Kept) -> list[tuple[str, int]]:
    (units,) = kept.of(UnitsRecord)
    return [(kept.names[name], took_ns) for name, took_ns in pairs_of(units.waits)]


def test_a_request_that_is_made_again_counts_with_its_unit(
    queue: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = queue.get_client()
    made = client.put(data=batch(), partition_id="again")
    ask, failed = MANAGER._get_from_single_storage_unit, []

    async def unanswered_once(self: Any, *args: Any, target_storage_unit: str, **kwargs: Any) -> Any:
        if not failed:
            failed.append(target_storage_unit)
            await asyncio.sleep(PLANTED_NS / 1e9)
            raise manager_module.StorageUnitTimeout("planted")
        return await ask(self, *args, target_storage_unit=target_storage_unit, **kwargs)

    monkeypatch.setattr(MANAGER, "_get_from_single_storage_unit", unanswered_once)
    with traced() as kept:
        client.get_data(made)
    (slow,), get = failed, one(kept)
    assert sorted(unit for unit, _ in waits_of(kept)) == sorted(
        [*client.storage_manager.storage_unit_infos, slow]
    )
    assert kept.names[get.slowest_unit] == slow
    assert get.slowest_unit_ns == sum(took_ns for unit, took_ns in waits_of(kept) if unit == slow)
    assert get.slowest_unit_ns >= PLANTED_NS - SLACK_NS and get.error == 0


@pytest.fixture
def transport(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Makes a module of a transport, through which the manager puts from then on; its method of before has
    another name then, so that only the transport tells who was asked.
    """
    put = MANAGER._put_to_single_storage_unit

    class PayloadTransfer:
        async def put(self, *, manager: Any, target_id: str, indexes: list[int], data: Any) -> None:
            if module.__name__ == adapter._NIXL:  # there values pass by `ZMQMessage`
                module.encode(data)
            await put(manager, indexes, data, target_storage_unit=target_id)

        async def get(self, *, target_id: str) -> None:
            raise NotImplementedError

    async def put_by_transport(
        self: Any,
        global_indexes: list[int],
        storage_data: Any,
        target_storage_unit: str,
        data_parser: Any = None,
    ) -> None:
        await made[0].put(
            manager=self, target_id=target_storage_unit, indexes=global_indexes, data=storage_data
        )

    made: list[Any] = [PayloadTransfer()]
    module = ModuleType("")

    def install(name: str) -> ModuleType:
        module.__name__ = name
        owner = next(point.owner for point in adapter.POINTS if point.module == name and point.owner)
        setattr(module, owner, PayloadTransfer)
        module.encode = module.decode = lambda data: time.sleep(PLANTED_NS / 1e9)
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(MANAGER, "_put_to_single_storage_unit", put_by_transport)
        return module

    return install


def test_a_transport_within_a_request_is_part_of_it(
    queue: Any, transport: Callable[[str], ModuleType]
) -> None:
    transport(adapter._ZMQ)
    client = queue.get_client()
    with traced() as kept:
        client.put(data=batch(), partition_id="transport")
    put = one(kept)
    assert sorted(unit for unit, _ in waits_of(kept)) == sorted(client.storage_manager.storage_unit_infos)
    assert put.serialize_ns > 0 and 0 < put.slowest_unit_ns <= put.unit_ns <= put.total_ns


def test_a_transport_alone_tells_which_unit_was_asked(
    queue: Any, transport: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    transport(adapter._ZMQ)
    points = [point for point in adapter.POINTS if point.name != "_put_to_single_storage_unit"]
    monkeypatch.setattr(adapter, "POINTS", points)
    client = queue.get_client()
    with traced() as kept:
        client.put(data=batch(), partition_id="transport alone")
    assert sorted(unit for unit, _ in waits_of(kept)) == sorted(client.storage_manager.storage_unit_infos)


def test_values_that_pass_by_the_message_are_encoded_all_the_same(
    queue: Any, transport: Callable[[str], ModuleType]
) -> None:
    transport(adapter._NIXL)
    client = queue.get_client()
    with traced() as kept:
        client.put(data=batch(), partition_id="encoded")
    put, units = one(kept), len(client.storage_manager.storage_unit_infos)
    assert put.serialize_ns >= units * (PLANTED_NS - SLACK_NS)
    assert put.total_ns - put.serialize_ns >= put.unit_ns + put.notify_ns + put.tags_ns
    assert put.unit_ns < PLANTED_NS  # what is encoded is no waiting


async def update_data(self: Any, metadata: Any, values: TensorDict, merge_fn: Callable[..., Any]) -> None:
    """As a later version merges values into those that are there."""
    held = await self.get_data(metadata)
    merged = {name: merge_fn(torch.stack(held[name].unbind()), value) for name, value in values.items()}
    await self.put_data(TensorDict(merged, batch_size=metadata.size), metadata)


def test_an_update_is_an_operation_of_its_own(queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MANAGER, "update_data", update_data, raising=False)
    client = queue.get_client()
    made = client.put(data=batch(), partition_id="updated")
    with traced() as kept:
        asyncio.run(client.storage_manager.update_data(made, batch(), torch.add))
    update, names = one(kept), kept.names
    assert (update.operation, update.rows, update.fields) == (Kind.UPDATE, 8, 1)
    assert (update.size_bytes, update.error) == (8 * 2 * 8, 0)
    assert (update.first_row, names[update.partition]) == (made.global_indexes[0], "updated")
    assert [row.tolist() for row in client.get_data(made)["prompt"].unbind()] == (
        2 * batch()["prompt"]
    ).tolist()


def said(kept: Kept) -> list[str]:
    return [event.text for event in kept.of(EventRecord)]


async def renamed(self: Any, batch: Any) -> TensorDict:
    return await self._get(batch)


@pytest.mark.parametrize(
    ("name", "other", "expected"),
    [
        (
            "async_get_data",
            renamed,
            "transfer_queue.client.AsyncTransferQueueClient.async_get_data is gone or takes other arguments;"
            " not known without it: operations at all",
        ),
        (
            "async_move",
            renamed,
            "AsyncTransferQueueClient.async_move is not known: what it moves may not be counted",
        ),
    ],
)
def test_what_is_not_known_of_a_version_is_said_by_name(
    queue: Any,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    other: Callable[..., Awaitable[Any]],
    expected: str,
) -> None:
    kind = client_module.AsyncTransferQueueClient
    monkeypatch.setattr(kind, "_get", kind.async_get_data, raising=False)
    monkeypatch.setattr(kind, name, other, raising=False)
    with traced() as kept:
        made = queue.get_client().put(data=batch(), partition_id="unknown")
        asyncio.run(queue.get_client().async_get_data(made))
    assert said(kept) == [expected]
    assert {each.operation for each in kept.of(OperationRecord)} >= {Kind.PUT}


def test_nothing_is_said_of_the_version_that_is_installed(queue: Any) -> None:
    with traced(keys=True, stamp=True) as kept:
        queue.get_client().put(data=batch(), partition_id="known")
    assert said(kept) == []
