"""Puts and gets of a real queue, as they are recorded."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict

from flagscale_perf.trace.records import ONE, Kind, OperationRecord
from tests.trace.tracing import traced


def batch(rows: int) -> TensorDict:
    """16 bytes a row."""
    return TensorDict(
        {"prompt": torch.arange(rows * 2).reshape(rows, 2), "score": torch.zeros(rows, 4)}, batch_size=rows
    )


def test_a_put_and_a_get_are_recorded_as_they_are(queue: Any) -> None:
    client = queue.get_client()
    with traced() as kept:
        made = client.put(data=batch(64), partition_id="train")
        meta = client.get_meta(["prompt"], batch_size=32, partition_id="train", task_name="t")
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
    assert {names[put.partition], names[get.partition]} == {"train"}
    assert (put.call, put.error, put.weight_milli, put.trace_id, put.step) == (0, 0, ONE, "", None)
    assert put.total_ns > 0 and put.start_ns + put.total_ns <= get.start_ns
