"""Rows of one step."""

from __future__ import annotations

import pytest

from flagscale_perf.profile.attribution import Attribution
from flagscale_perf.profile.events import Events
from flagscale_perf.profile.pieces import Pieces
from flagscale_perf.profile.records import PARTS, Sort
from flagscale_perf.profile.rows import Key, Row, StepRows, rows_of
from tests.profiled_events import Event, events_of, module, node, step


def made(events: Events) -> StepRows:
    places = Attribution(events)
    return rows_of(events, places, Pieces.of(events, places))


US = 1000


def one_step() -> Events:
    return events_of(
        [
            step(200),
            module("m", 10, 60),
            Event("aten::mm", 20, 50, sequence=1),
            Event("aten::sum", 70, 90),
            Event("aten::sum", 75, 85),
            node("MmBackward0", 100, 120, 1),
            Event("MmBackward0", 102, 118, scope=1, sequence=1, forward_thread=1),
            Event("aten::mm", 105, 115),
            node("torch::autograd::AccumulateGrad", 125, 130),
            Event("Optimizer.step#SGD.step", 150, 180, scope=7),
            Event("aten::add_", 155, 175),
        ]
    )


def test_a_step_of_one_module_its_backward_and_an_optimizer() -> None:
    found = made(one_step())
    operator, host, engine = int(Sort.OPERATOR), int(Sort.HOST), int(Sort.ENGINE)
    assert found.rows == {
        Key("other", "", host, ""): Row(1, 70 * US, 200 * US),
        Key("other", "", operator, "aten::sum"): Row(1, 20 * US, 20 * US),
        Key("forward", "m", host, ""): Row(1, 20 * US, 50 * US),
        Key("forward", "m", operator, "aten::mm"): Row(1, 30 * US, 30 * US),
        Key("backward", "m", operator, "MmBackward0"): Row(1, 10 * US, 20 * US),
        Key("backward", "m", operator, "aten::mm"): Row(1, 10 * US, 10 * US),
        Key("backward", "m", operator, "torch::autograd::AccumulateGrad"): Row(1, 5 * US, 5 * US),
        Key("backward", "", engine, ""): Row(1, 5 * US, 5 * US),
        Key("optimizer", "", host, "Optimizer.step#SGD.step"): Row(1, 10 * US, 30 * US),
        Key("optimizer", "", operator, "aten::add_"): Row(1, 20 * US, 20 * US),
    }
    parts = {"operators": 55, "outside": 40, "communication": 0, "host": 100, "engine": 5}
    assert found.parts_ns == {part: us * US for part, us in parts.items()}
    assert [*found.parts_ns, "residual"] == list(PARTS)
    assert found.booked_ns == 200 * US


@pytest.mark.parametrize("dispatch", ["PythonDispatchMode", "PythonSubclass"])
def test_an_operator_that_python_calls_again_has_run_once(dispatch: str) -> None:
    """As with a FlopCounterMode, or a tensor whose class has a `__torch_dispatch__`."""
    found = made(
        events_of(
            [
                step(100),
                Event("aten::mm", 10, 90, sequence=1),
                Event(dispatch, 15, 85),
                Event("aten::mm", 50, 80),
            ]
        )
    )
    operator, host = int(Sort.OPERATOR), int(Sort.HOST)
    assert found.rows == {
        Key("other", "", host, ""): Row(1, 20 * US, 100 * US),
        Key("other", "", host, dispatch): Row(1, 40 * US, 70 * US),
        Key("other", "", operator, "aten::mm"): Row(1, 40 * US, 80 * US),
    }
    assert found.calls is not None
    runs = zip(found.calls.op.tolist(), found.calls.duration_ns.tolist(), strict=True)
    assert [(found.calls.ops[op], ns) for op, ns in runs] == [("aten::mm", 80 * US)]


def test_each_run_of_an_operator_or_module_of_a_step() -> None:
    events = one_step()
    calls = made(events).calls
    assert calls is not None
    runs = zip(
        [calls.modules[at] for at in calls.module],
        [calls.ops[at] for at in calls.op],
        calls.ordinal.tolist(),
        calls.start_ns.tolist(),
        calls.duration_ns.tolist(),
        calls.self_ns.tolist(),
        strict=True,
    )
    begin = int(events.start_ns[0])
    assert [
        (module, op, at, (start - begin) // US, took // US, own // US)
        for module, op, at, start, took, own in runs
    ] == [
        ("m", "", 0, 10, 50, 20),  # the module
        ("m", "aten::mm", 0, 20, 30, 30),
        ("", "aten::sum", 0, 70, 20, 20),  # and the one in it
        ("m", "MmBackward0", 0, 100, 20, 10),
        ("m", "aten::mm", 0, 105, 10, 10),  # of the backward
        ("m", "torch::autograd::AccumulateGrad", 0, 125, 5, 5),
        ("", "aten::add_", 0, 155, 20, 20),
    ]


def test_the_runs_of_a_row_make_the_row() -> None:
    events = events_of(
        [
            step(200),
            module("m", 10, 100),
            Event("aten::mm", 20, 50),
            Event("aten::mm", 60, 70),
            Event("aten::linear", 72, 95),
            Event("aten::t", 74, 76),
            Event("aten::mm", 80, 92),
        ]
    )
    found = made(events)
    calls = found.calls
    assert calls is not None
    mine = [at for at, op in enumerate(calls.op) if calls.ops[op] == "aten::mm"]
    row = found.rows[Key("forward", "m", int(Sort.OPERATOR), "aten::mm")]
    assert calls.ordinal[mine].tolist() == [0, 1, 2]
    assert (row.runs, row.self_ns, row.total_ns) == (
        3,
        calls.self_ns[mine].sum(),
        calls.duration_ns[mine].sum(),
    )


def test_rows_of_two_steps_add_up() -> None:
    row = Row(2, 10, 20, None)
    row.add(Row(1, 5, 6, 7))
    assert row == Row(3, 15, 26, 7, steps=2)
