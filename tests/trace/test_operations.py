"""Puts and gets of a real queue, as they are recorded."""

from __future__ import annotations

import time
from typing import Any

import ray
import torch
from tensordict import TensorDict

from flagscale_perf.trace.analysis.transfers import pairs_of
from flagscale_perf.trace.batches import key_number
from flagscale_perf.trace.records import (
    ONE,
    Begun,
    ClearRecord,
    KeysRecord,
    Kind,
    OperationRecord,
    StartRecord,
    VersionsRecord,
    WaitRecord,
)
from tests.trace.tracing import traced


def batch(rows: int) -> TensorDict:
    """16 bytes a row."""
    return TensorDict(
        {"prompt": torch.arange(rows * 2).reshape(rows, 2), "score": torch.zeros(rows, 4)}, batch_size=rows
    )


def indexes_of(clear: ClearRecord) -> list[int]:
    pairs = zip(clear.ranges[::2], clear.ranges[1::2], strict=True)
    return [index for first, count in pairs for index in range(first, first + count)]


def test_a_put_and_a_get_are_recorded_as_they_are(queue: Any) -> None:
    client = queue.get_client()
    with traced() as kept:
        made = client.put(data=batch(64), partition_id="operations")
        meta = client.get_meta(["prompt"], batch_size=32, partition_id="operations", task_name="t")
        client.get_data(meta)
    put, get = kept.of(OperationRecord)
    names = kept.names
    first = made.global_indexes[0]
    assert (put.operation, get.operation) == (Kind.PUT, Kind.GET)
    assert (put.number, get.number) == (1, 2)
    assert (put.rows, put.fields, put.size_bytes) == (64, 2, 64 * 16 + 64 * 16)
    assert (get.rows, get.fields, get.size_bytes) == (32, 1, 32 * 16)
    assert (put.first_row, put.last_row) == (first, first + 63)
    assert (get.first_row, get.last_row) == (first, first + 31)
    assert {names[put.partition], names[get.partition]} == {"operations"}
    assert (put.call, put.error, put.weight_milli, put.step) == (0, 0, ONE, None)
    begun = [start.trace_id for start in kept.of(StartRecord) if start.begun <= Begun.GET]
    assert begun == [put.trace_id, get.trace_id]
    assert "" != put.trace_id != get.trace_id
    assert put.total_ns > 0 and put.start_ns + put.total_ns <= get.start_ns


def test_who_asks_for_samples_is_recorded_with_what_it_was_told(queue: Any) -> None:
    client = queue.get_client()

    def ask() -> int:
        return len(client.get_meta(["prompt"], 4, "waits", task_name="train").global_indexes)

    with traced() as kept:
        clock = [time.perf_counter_ns()]
        told = [ask()]
        clock.append(time.perf_counter_ns())
        client.put(data=batch(4), partition_id="waits")
        clock.append(time.perf_counter_ns())
        told.append(ask())
        clock.append(time.perf_counter_ns())
    waits, names = kept.of(WaitRecord), kept.names
    assert [each.rows for each in waits] == told == [0, 4]
    assert [(each.wanted, names[each.task]) for each in waits] == [(4, "train")] * 2
    for each, before_ns, after_ns in zip(waits, clock[::2], clock[1::2], strict=True):
        assert before_ns <= each.start_ns <= each.start_ns + each.total_ns <= after_ns
    begun = [start for start in kept.of(StartRecord) if start.begun == Begun.WAIT]
    ids = [(each.start_ns, each.trace_id) for each in waits]
    assert [(each.start_ns, each.trace_id) for each in begun] == ids


def test_the_stages_of_an_operation_lie_in_it_and_a_unit_is_named(queue: Any) -> None:
    client = queue.get_client()
    with traced() as kept:
        made = client.put(data=batch(64), partition_id="stages")
        client.get_data(made)
    put, get = kept.of(OperationRecord)
    of_put = (put.select_ns, put.serialize_ns, put.unit_ns, put.notify_ns, put.tags_ns)
    of_get = (get.unit_ns, get.decode_ns, get.pack_ns)
    assert all(stage > 0 for stage in of_put + of_get)
    assert sum(of_put) <= put.total_ns and sum(of_get) <= get.total_ns
    assert (put.decode_ns, put.pack_ns) == (None, None)
    assert (get.select_ns, get.serialize_ns, get.notify_ns, get.tags_ns) == (None,) * 4
    units = set(client.storage_manager.storage_unit_infos)
    for operation in (put, get):
        assert kept.names[operation.slowest_unit] in units
        assert 0 < operation.slowest_unit_ns <= operation.unit_ns


def test_what_is_cleared_is_recorded_and_its_indexes_come_again(queue: Any) -> None:
    client = queue.get_client()
    keys = ["a", "b", "c", "d"]
    with traced() as kept:
        by_key = queue.kv_batch_put(keys, "cleared", batch(4))
        rows = client.kv_retrieve_meta(keys=keys, partition_id="cleared", create=False).global_indexes
        queue.kv_clear(["a", "b", "d"], "cleared")
        made = client.put(data=batch(3), partition_id="other")
        client.clear_samples(made.select_samples([0, 1]))
        client.clear_partition("other")
        client.clear_partition("cleared")
    assert by_key.keys == keys
    clears, names = kept.of(ClearRecord), kept.names
    assert [indexes_of(one) for one in clears] == [
        sorted([rows[0], rows[1], rows[3]]),
        sorted(made.global_indexes[:2]),
        made.global_indexes[2:],
        [rows[2]],
    ]
    assert [names[one.partition] for one in clears] == ["cleared", "other", "other", "cleared"]
    assert [one.is_partition for one in clears] == [0, 0, 1, 1]
    assert {(one.call, one.error, one.is_cut) for one in clears} == {(0, 0, 0)}
    assert all(one.total_ns > 0 for one in clears)
    assert [one.number for one in kept.of(OperationRecord)] == [1, 2]
    assert clears[0].start_ns + clears[0].total_ns <= kept.of(OperationRecord)[1].start_ns


def test_a_key_is_recorded_with_its_sample(queue: Any) -> None:
    keys = ["a", "b", "c"]
    with traced(keys=True) as kept:
        queue.kv_batch_put(keys, "keyed", batch(3))
    rows = queue.get_client().kv_retrieve_meta(keys=keys, partition_id="keyed", create=False).global_indexes
    (record,) = kept.of(KeysRecord)
    assert kept.names[record.partition] == "keyed"
    assert dict(pairs_of(record.keys)) == dict(zip(rows, map(key_number, keys), strict=True))


def test_the_weights_that_made_samples_are_recorded_as_their_tags_have_them(queue: Any) -> None:
    tags = [{"min_global_steps": 6 + row, "max_global_steps": 9} for row in range(3)]
    with traced() as kept:
        queue.kv_batch_put(["va", "vb", "vc"], "versions", batch(3), tags)
        queue.get_client().put(data=batch(3), partition_id="no versions")
    (record,) = kept.of(VersionsRecord)
    assert (record.number, record.oldest, record.newest) == (1, 6, 9)


def test_undone_everything_is_as_before(queue: Any) -> None:
    from transfer_queue import client as module
    from transfer_queue.storage.managers import base, simple_storage_manager
    from transfer_queue.utils import zmq_utils

    classes = [
        module.AsyncTransferQueueClient,
        module.TransferQueueClient,
        base.StorageManager,
        base.KVStorageManager,
        simple_storage_manager.AsyncSimpleStorageManager,
        zmq_utils.ZMQMessage,
    ]
    before = [dict(vars(each)) for each in classes], ray.init
    client = queue.get_client()
    with traced() as kept:
        assert module.AsyncTransferQueueClient.async_put is not before[0][0]["async_put"]
        client.put(data=batch(4), partition_id="undo")
    count = len(kept)
    assert [dict(vars(each)) for each in classes] == before[0]
    assert ray.init is before[1]
    client.put(data=batch(4), partition_id="undo")
    assert len(kept) == count > 0
