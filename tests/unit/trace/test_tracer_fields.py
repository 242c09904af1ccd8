"""The values of an operation's record, which is made by position, are each in their own field."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.trace import tracer as tracing
from flagscale_perf.trace.records import OperationRecord
from flagscale_perf.trace.running import CALL, GET, Call, Operation
from tests.unit.trace.test_tracer import batch, traced

STAGES = ("select", "serialize", "unit", "slowest_unit", "notify", "tags", "decode", "pack")


def test_each_value_is_in_its_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "monotonic_ns", lambda: 1000)
    tracer, records = traced()
    for place in range(3):  # so that numbers of records and of names differ
        error = type(f"Error{place}", (Exception,), {})()
        tracer.end_operation(Operation(GET, None, 0), batch([0], f"partition {place}"), None, error)
    times: dict[str, Any] = {f"{stage}_ns": 100 + place for place, stage in enumerate(STAGES)}
    call = Call("rollout", SimpleNamespace(extra_info={}, custom_meta=[], global_indexes=[]), None, 0)
    operation = Operation(GET, call, start_ns=300, slowest_unit="unit 1", **times)
    data = {name: torch.zeros(30, 2) for name in "abcdefghijk"}
    of = batch(list(range(50, 80)), trace_id="a1", global_steps=40)
    tracer.end_operation(operation, of, data, OSError())
    CALL.set(None)
    names = {one.text: one.number for one in records if isinstance(one, NameRecord)}
    made = records[-1]
    assert isinstance(made, OperationRecord)
    assert made._asdict() == times | {
        "process": 0,
        "number": 5,
        "call": 4,
        "operation": GET,
        "start_ns": 300,
        "total_ns": 700,
        "slowest_unit": names["unit 1"],
        "size_bytes": 11 * 30 * 2 * 4,
        "rows": 30,
        "fields": 11,
        "first_row": 50,
        "last_row": 79,
        "partition": names["train"],
        "error": names["OSError"],
        "weight_milli": 1000,
        "step": 40,
        "trace_id": "a1",
        "field_set": names["k"] + 1,
    }
    assert len(set(made)) == len(made)
