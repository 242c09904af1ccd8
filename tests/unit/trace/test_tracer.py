"""Operations and calls become records that add up, whatever fails, and sampling loses no error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.spine.records import TYPES
from flagscale_perf.trace import running
from flagscale_perf.trace import tracer as tracing
from flagscale_perf.trace.options import TraceOptions
from flagscale_perf.trace.records import (
    Begun,
    CallRecord,
    ClearRecord,
    FieldsRecord,
    OperationRecord,
    RowsRecord,
    StartRecord,
    UnitsRecord,
    UnsizedRecord,
)
from flagscale_perf.trace.running import CALL, GET, PUT, Call, Clear, Operation
from flagscale_perf.trace.side import CLEAR_ROOM, FIELDS_ROOM, MOST_RANGES, RANGES_ROOM
from flagscale_perf.trace.tracer import Tracer

OPTIONS = {"trace": True, "detail": True, "directory": Path("unused")}


def batch(rows: list[int], partition: str = "train", **info: Any) -> SimpleNamespace:
    return SimpleNamespace(
        global_indexes=rows,
        partition_ids=[partition] * len(rows),
        extra_info=info,
        custom_meta=[{} for _ in rows],
        size=len(rows),
    )


def keys(*names: str, **info: Any) -> SimpleNamespace:
    """A batch of keys: nobody knows its rows yet."""
    return SimpleNamespace(keys=names, extra_info=info, tags=[{} for _ in names], size=len(names))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time that it is."""
    now = [0]
    monkeypatch.setattr(tracing, "monotonic_ns", lambda: now[0])
    return now


@pytest.fixture(autouse=True)
def nothing_is_traced() -> Iterator[None]:
    yield
    CALL.set(None)
    running.OPERATION.set(None)
    tracing.active = None
    tracing._has_failed = False


def traced(**changes: Any) -> tuple[Tracer, list[Any]]:
    records: list[Any] = []
    return Tracer(TraceOptions(**(OPTIONS | changes)), records.append), records


def test_an_operation_is_one_record_behind_its_names(clock) -> None:
    tracer, records = traced()
    operation = Operation(PUT, None, start_ns=100)
    operation.select_ns, operation.serialize_ns, operation.unit_ns = 1, 2, 3
    operation.slowest_unit, operation.slowest_unit_ns = "unit 1", 4
    operation.notify_ns, operation.tags_ns = 5, 6
    clock[0] = 150
    tracer.end_operation(
        operation, batch([7, 8, 9], trace_id="a1", global_steps=3), {"x": torch.zeros(3, 2)}, None
    )
    assert records == [
        NameRecord(0, 1, "train"),
        NameRecord(0, 2, "unit 1"),
        NameRecord(0, 3, "x"),
        FieldsRecord(0, 4, (3,)),
        OperationRecord(
            0, 1, 0, PUT, 100, 50, 1, 2, 3, 2, 4, 5, 6, None, None, 24, 3, 1, 7, 9, 1, 0, 1000, 3, "a1", 4
        ),
    ]


def test_what_begins_is_recorded_at_once_unless_a_sample_is_kept(clock) -> None:
    tracer, records = traced()
    call = tracer.begin_call("rollout", batch([0], trace_id="a1"))
    assert call is not None
    tracer.begin_stage(Begun.COMPUTE, call, 5)
    clock[0] = 7
    tracer.begin_operation(PUT, None, "other")
    assert [record for record in records if isinstance(record, StartRecord)] == [
        StartRecord(0, Begun.CALL, 0, 0, 1, 2, "a1"),
        StartRecord(0, Begun.COMPUTE, 0, 5, 1, 2, "a1"),
        StartRecord(0, Begun.PUT, 7, 7, 1, 3, "a1"),
    ]
    tracer, records = traced(every=2)
    tracer.begin_operation(GET, batch([0]))
    assert records == []


def test_an_operation_outside_of_any_function_has_one_id_from_its_start_on_and_in_its_tags(
    clock,
) -> None:
    tracer, records = traced(stamp=True)
    rows = batch([0])
    for given, stored in ((None, rows), (rows, rows), (None, batch([1]))):
        operation = tracer.begin_operation(PUT, given, "train")
        tracer.stamp(stored)
        tracer.end_operation(operation, stored, {}, None)
    begun = [record.trace_id for record in records if isinstance(record, StartRecord)]
    ended = [record.trace_id for record in records if isinstance(record, OperationRecord)]
    tag = rows.custom_meta[0]["trace_id"]
    assert begun == ended == [tag, tag, begun[2]]
    assert tag and tag != begun[2]


def test_how_long_each_of_several_units_was_waited_for_comes_before_the_operation(clock) -> None:
    tracer, records = traced()
    for waits in ([("unit 0", 5)], [("unit 0", 5), ("unit 1", 7)]):
        operation = Operation(GET, None, 0)
        operation.waits += waits
        tracer.end_operation(operation, batch([0]), {}, None)
    names = {record.text: record.number for record in records if isinstance(record, NameRecord)}
    assert records[-2:-1] == [UnitsRecord(0, 2, (names["unit 0"], 5, names["unit 1"], 7))]
    assert sum(isinstance(record, UnitsRecord) for record in records) == 1


def test_of_a_field_without_a_size_the_others_are_known_and_it_is_named(clock) -> None:
    tracer, records = traced()
    fields = {"x": torch.zeros(2), "image": [object()]}
    tracer.end_operation(Operation(GET, None, 0), batch([0]), fields, None)
    image = next(record.number for record in records if record[-1] == "image")
    assert records[-2] == UnsizedRecord(0, 1, 8, (image,))
    assert (records[-1].size_bytes, records[-1].number) == (None, 1)


def test_a_call_of_a_batch_without_an_id_has_one_of_its_own_and_its_operations_have_it(clock) -> None:
    tracer, records = traced()
    for _ in range(2):
        call = tracer.begin_call("rollout", batch([0]))
        assert call is not None
        tracer.end_operation(Operation(GET, call, 0), batch([0]), {}, None)
        tracer.end_call(call, None)
    ids = [record.trace_id for record in records if isinstance(record, OperationRecord | CallRecord)]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    assert all(ids)


def test_a_set_of_fields_is_named_once_and_has_all_of_many(clock) -> None:
    tracer, records = traced()
    many = {f"field {number}": None for number in range(FIELDS_ROOM + 1)}
    for fields in ({"x": None}, many, {"x": None}):
        tracer.end_operation(Operation(GET, None, 0), batch([0]), fields, None)
    names = {record.number: record.text for record in records if isinstance(record, NameRecord)}
    sets: dict[int, list[str]] = {}
    for record in records:
        if isinstance(record, FieldsRecord):
            sets.setdefault(record.number, []).extend(names[field] for field in record.fields)
    operations = [record for record in records if isinstance(record, OperationRecord)]
    assert [sets[each.field_set] for each in operations] == [["x"], list(many), ["x"]]
    assert len(sets) == 2


def test_an_operation_that_failed_has_its_error_and_no_bytes(clock) -> None:
    tracer, records = traced()
    tracer.end_operation(Operation(GET, None, 0), batch([0, 1]), None, TimeoutError())
    (operation,) = (record for record in records if isinstance(record, OperationRecord))
    names = {record.number: record.text for record in records if isinstance(record, NameRecord)}
    assert (names[operation.error], operation.size_bytes, operation.rows, operation.fields) == (
        "TimeoutError",
        None,
        2,
        0,
    )


@pytest.mark.parametrize("nothing", [None, batch([])])
def test_without_rows_there_is_no_place(clock, nothing) -> None:
    tracer, records = traced()
    tracer.end_operation(Operation(GET, None, 0), nothing, {}, None)
    operation = records[-1]
    assert (operation.rows, operation.first_row, operation.last_row, operation.size_bytes) == (
        0,
        None,
        None,
        0,
    )


def test_scattered_rows_come_before_their_operation_in_as_many_records_as_it_takes(clock) -> None:
    tracer, records = traced()
    tracer.end_operation(Operation(GET, None, 0), batch([4, 0, 1]), {}, None)
    assert records[1:] == [RowsRecord(0, 1, 0, (0, 2, 4, 1)), records[-1]]
    assert (records[-1].first_row, records[-1].last_row) == (0, 4)
    records.clear()
    tracer.end_operation(Operation(GET, None, 0), batch(list(range(0, 64, 2))), {}, None)
    parts = [record for record in records if isinstance(record, RowsRecord)]
    assert sum((record.ranges for record in parts), ()) == tuple(
        number for row in range(0, 64, 2) for number in (row, 1)
    )
    assert [(record.number, record.is_cut, len(record.ranges)) for record in parts] == [
        (2, 0, RANGES_ROOM),
        (2, 0, RANGES_ROOM),
        (2, 0, 64 - 2 * RANGES_ROOM),
    ]
    layout = TYPES[RowsRecord].layout
    assert layout is not None and layout.room // 2 * 2 == RANGES_ROOM


def test_rows_in_another_order_are_one_range_still(clock) -> None:
    tracer, records = traced()
    tracer.end_operation(Operation(GET, None, 0), batch([3, 2, 1]), {}, None)
    assert [type(record) for record in records] == [NameRecord, OperationRecord]
    assert (records[-1].first_row, records[-1].last_row) == (1, 3)


def ended(tracer: Tracer, call: Call, clock: list[int], *times: int) -> None:
    """Its compute began and ended, and it returned."""
    call.compute_start_ns, call.compute_end_ns, clock[0] = times
    call.has_computed = True
    tracer.end_call(call, None)


def test_a_call_is_the_sum_of_its_parts_and_its_operations_know_it(clock) -> None:
    tracer, records = traced()
    call = Call("score", batch([0, 1], trace_id="a1"), None, start_ns=1000)
    clock[0] = 1100
    tracer.end_operation(Operation(GET, call, 1010), batch([0, 1]), {"x": torch.zeros(2)}, None)
    clock[0] = 1450
    tracer.end_operation(Operation(PUT, call, 1400), batch([0, 1]), {"y": torch.zeros(4)}, None)
    ended(tracer, call, clock, 1100, 1400, 1500)
    operations = [record for record in records if isinstance(record, OperationRecord)]
    assert [(each.number, each.call, each.trace_id) for each in operations] == [(2, 1, "a1"), (3, 1, "a1")]
    names = {record.text: record.number for record in records if isinstance(record, NameRecord)}
    assert records[-1] == CallRecord(
        0, 1, 0, 1000, 500, 100, 300, 100, 2, 2, 90, 50, 8, 16, names["score"], 0, 1000, None, "a1"
    )


@pytest.mark.parametrize(
    ("times", "parts"),
    [
        ((None, None, False), (50, None, None)),
        ((10, 40, False), (10, 30, None)),
        ((10, 40, True), (10, 30, 10)),
    ],
)
def test_a_call_that_fails_has_the_parts_that_it_came_to(clock, times, parts) -> None:
    tracer, records = traced()
    call = Call("boom", batch([0]), None, start_ns=0)
    call.compute_start_ns, call.compute_end_ns, call.has_computed = times
    clock[0] = 50
    tracer.end_call(call, KeyError())
    (made,) = (record for record in records if isinstance(record, CallRecord))
    assert (made.get_ns, made.compute_ns, made.put_ns) == parts
    assert records[-2] == NameRecord(0, made.error, "KeyError")


def test_a_call_in_a_call_keeps_its_own_id_and_names_its_parent(clock) -> None:
    tracer, records = traced()
    outer = Call("outer", batch([0], trace_id="outer", global_steps=4), None, 0)
    inner = Call("inner", batch([1], trace_id="inner"), outer, 1)
    nameless = Call("nameless", keys("k"), inner, 2)
    for call in (nameless, inner, outer):
        ended(tracer, call, clock, 3, 4, 5)
    calls = [record for record in records if isinstance(record, CallRecord)]
    assert [(each.number, each.parent, each.trace_id, each.step) for each in calls] == [
        (1, 2, "inner", 4),
        (2, 3, "inner", 4),
        (3, 0, "outer", 4),
    ]


def test_only_what_is_switched_on_is_kept(clock) -> None:
    def kinds(**options: bool) -> list[type]:
        tracer, records = traced(**options)
        call = Call("score", batch([0]), None, 0)
        tracer.end_operation(Operation(GET, call, 0), batch([0]), {}, None)
        ended(tracer, call, clock, 1, 2, 3)
        return [type(record) for record in records if not isinstance(record, NameRecord)]

    assert kinds(detail=False) == [CallRecord]
    assert kinds(trace=False) == [OperationRecord]
    assert kinds() == [OperationRecord, CallRecord]


def test_what_is_not_kept_takes_no_number_and_both_sides_decide_alike(clock) -> None:
    producer, made = traced(every=4)
    consumer, taken = traced(every=4)
    for first in range(0, 64 * 200, 64):
        rows = batch(list(range(first, first + 64)))
        producer.end_operation(Operation(PUT, None, 0), rows, {}, None)
        consumer.end_operation(Operation(GET, None, 0), rows, {}, None)

    def kept(records: list[Any]) -> list[Any]:
        return [record for record in records if isinstance(record, OperationRecord)]

    assert [each.first_row for each in kept(made)] == [each.first_row for each in kept(taken)]
    assert [each.number for each in kept(made)] == list(range(1, len(kept(made)) + 1))
    assert {each.weight_milli for each in kept(made)} == {4000}
    assert 30 < len(kept(made)) < 70  # the same each time


def test_errors_and_what_is_slow_are_always_kept_and_stand_for_themselves(clock) -> None:
    tracer, records = traced(every=1_000_000_000, slow_ms=0.0001)
    for duration_ns, error in ((99, None), (100, None), (1, KeyError())):
        clock[0] = duration_ns
        tracer.end_operation(Operation(GET, None, 0), batch([0]), None, error)
        call = Call("score", batch([0]), None, 0)
        tracer.end_call(call, error)
    kept = [record for record in records if not isinstance(record, NameRecord)]
    assert [(type(each), each.number, each.total_ns, each.weight_milli) for each in kept] == [
        (OperationRecord, 1, 100, 1000),
        (CallRecord, 2, 100, 1000),
        (OperationRecord, 3, 1, 1000),
        (CallRecord, 4, 1, 1000),
    ]


def test_a_call_on_keys_is_decided_on_with_what_is_got_for_it(clock) -> None:
    tracer, records = traced(every=4)
    for first in range(0, 64 * 50, 64):
        call = Call("score", keys("k"), None, 0)
        tracer.end_operation(Operation(GET, call, 0), batch(list(range(first, first + 64))), {}, None)
        ended(tracer, call, clock, 1, 2, 3)
    kept = [record for record in records if not isinstance(record, NameRecord)]
    assert len(kept) > 10
    operations, calls = kept[::2], kept[1::2]
    assert [each.call for each in operations] == [each.number for each in calls]


def test_a_step_that_is_said_is_the_one_of_batches_that_say_none(clock) -> None:
    tracer, records = traced()
    token = running._STEP.set(None)
    running.step(5)
    tracer.end_operation(Operation(GET, None, 0), batch([0]), {}, None)
    tracer.end_operation(Operation(GET, None, 0), batch([0], global_steps=6), {}, None)
    running._STEP.reset(token)
    assert [record.step for record in records[1:]] == [5, 6]


def test_a_failure_inside_is_said_once_and_ends_tracing(clock, capsys) -> None:
    def broken(record: Any) -> None:
        raise ZeroDivisionError("broken")

    tracer = tracing.active = Tracer(TraceOptions(**OPTIONS), broken)
    for _ in range(2):
        tracer.end_operation(Operation(GET, None, 0), batch([0]), {}, None)
        tracer.end_call(Call("score", batch([0]), None, 0), None)
    assert tracing.active is None
    assert capsys.readouterr().err == (
        f"flagscale_perf: tracing ends in process {os.getpid()}: ZeroDivisionError: broken\n"
    )


def test_a_batch_that_cannot_be_read_ends_tracing_and_nothing_else(capsys) -> None:
    tracer, _ = traced()
    tracing.active = tracer
    assert tracer.begin_call("score", object()) is None
    assert (tracing.active, CALL.get()) == (None, None)
    assert "AttributeError" in capsys.readouterr().err


def test_a_forked_child_begins_its_numbers_and_names_anew(clock) -> None:
    tracer, records = traced()
    tracing.active = tracer
    tracer.end_operation(Operation(GET, None, 0), batch([0]), {}, None)
    child = os.fork()
    if child == 0:
        records.clear()
        tracer.end_operation(Operation(GET, None, 0), batch([0]), {}, None)
        os._exit(0 if [record.number for record in records] == [1, 1] else 1)
    assert os.waitpid(child, 0)[1] == 0
    tracer.end_operation(Operation(GET, None, 0), batch([0]), {}, None)
    assert [record.number for record in records] == [1, 1, 2]


def test_a_clear_has_its_samples_partition_by_partition_and_takes_no_number(clock) -> None:
    tracer, records = traced(every=1000)
    cleared = SimpleNamespace(global_indexes=[3, 9, 1, 2], partition_ids=["a", "b", "a", "a"])
    clock[0] = 70
    tracer.end_clear(Clear(None, cleared, start_ns=50), None)
    tracer.end_operation(Operation(GET, None, 60), batch([0]), None, TimeoutError())
    assert records[:4] == [
        NameRecord(0, 1, "a"),
        ClearRecord(0, 0, 50, 20, 1, 0, 0, 0, (1, 3)),
        NameRecord(0, 2, "b"),
        ClearRecord(0, 0, 50, 20, 2, 0, 0, 0, (9, 1)),
    ]
    assert records[-1].number == 1


def test_a_cleared_partition_whose_samples_nobody_has_said_is_one_record(clock) -> None:
    tracer, records = traced()
    clock[0] = 70
    tracer.end_clear(Clear("a", None, start_ns=50), RuntimeError())
    assert records == [
        NameRecord(0, 1, "RuntimeError"),
        NameRecord(0, 2, "a"),
        ClearRecord(0, 0, 50, 20, 2, 1, 1, 0, ()),
    ]


def test_a_clear_of_scattered_samples_has_several_records_up_to_a_bound(clock) -> None:
    tracer, records = traced()
    rows = list(range(0, 4 * MOST_RANGES, 2))
    tracer.end_clear(Clear(None, batch(rows), start_ns=0), None)
    clears = [record for record in records if isinstance(record, ClearRecord)]
    named = [number for clear in clears for number in clear.ranges[::2]]
    assert named == rows[: MOST_RANGES // 2]
    assert max(len(clear.ranges) for clear in clears) == CLEAR_ROOM
    assert [clear.is_cut for clear in clears] == [0] * (len(clears) - 1) + [1]


def test_without_operations_no_clear_is_recorded(clock) -> None:
    tracer, records = traced(detail=False)
    tracer.end_clear(Clear("a", None, start_ns=50), None)
    assert records == []
