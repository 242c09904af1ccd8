"""Rows of one step."""

from __future__ import annotations

from flagscale_perf.profile.attribution import Attribution
from flagscale_perf.profile.records import Sort
from flagscale_perf.profile.rows import Key, Row, rows_of
from tests.profiled_events import Event, events_of, module, node, step


def test_a_step_of_one_module_its_backward_and_an_optimizer() -> None:
    events = events_of(
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
    found = rows_of(events, Attribution.of(events), lambda name: False)
    operator, host, engine = int(Sort.OPERATOR), int(Sort.HOST), int(Sort.ENGINE)
    us = 1000
    assert found.rows == {
        Key("other", "", host, ""): Row(1, 70 * us, 200 * us),
        Key("other", "", operator, "aten::sum"): Row(1, 20 * us, 20 * us),
        Key("forward", "m", host, ""): Row(1, 20 * us, 50 * us),
        Key("forward", "m", operator, "aten::mm"): Row(1, 30 * us, 30 * us),
        Key("backward", "m", operator, "MmBackward0"): Row(1, 10 * us, 20 * us),
        Key("backward", "m", operator, "aten::mm"): Row(1, 10 * us, 10 * us),
        Key("backward", "m", operator, "torch::autograd::AccumulateGrad"): Row(1, 5 * us, 5 * us),
        Key("backward", "", engine, ""): Row(1, 5 * us, 5 * us),
        Key("optimizer", "", host, "Optimizer.step#SGD.step"): Row(1, 10 * us, 30 * us),
        Key("optimizer", "", operator, "aten::add_"): Row(1, 20 * us, 20 * us),
    }
    assert (found.operators_ns, found.outside_ns, found.host_ns, found.engine_ns, found.communication_ns) == (
        55 * us, 40 * us, 100 * us, 5 * us, 0,
    )  # fmt: skip
    assert found.booked_ns == 200 * us


def test_rows_of_two_steps_add_up() -> None:
    row = Row(2, 10, 20, None)
    row.add(Row(1, 5, 6, 7))
    assert row == Row(3, 15, 26, 7, steps=2)
