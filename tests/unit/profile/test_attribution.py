"""Modules and parts of events."""

from __future__ import annotations

from flagscale_perf.profile.attribution import Attribution, Part
from tests.profiled_events import Event, events_of, module, node, step


def attributed(events: list[Event]) -> list[tuple[str, str, str]]:
    """Name, module and part of each."""
    columns = events_of(events)
    places = Attribution(columns)
    return [
        (columns.names[name], places.paths[path], Part(part).label)
        for name, path, part in zip(columns.name, places.module, places.part, strict=True)
    ]


def test_the_backward_pass_has_the_module_of_the_last_operator_with_its_number() -> None:
    found = attributed(
        [
            step(300),
            module("m", 10, 90),
            Event("aten::peek", 12, 14, sequence=5),  # looks at the number that the next one takes
            module("m.a", 20, 40),
            Event("aten::mm", 25, 35, sequence=5),
            module("m.b", 50, 70),
            Event("aten::add", 55, 65, sequence=6),
            Event("aten::loss", 92, 95, sequence=7),
            node("LossBackward0", 100, 110, 7),
            node("AddBackward0", 112, 120, 6),
            node("MmBackward0", 122, 140, 5),
            Event("aten::mm", 125, 138),
            node("torch::autograd::AccumulateGrad", 142, 150),
            Event("Optimizer.step#AdamW.step", 200, 250, scope=7),
            Event("aten::mul_", 210, 220),
        ]
    )
    assert found == [
        ("flagscale_perf step", "", "other"),
        ("module m", "m", "forward"),
        ("aten::peek", "m", "forward"),
        ("module m.a", "m.a", "forward"),
        ("aten::mm", "m.a", "forward"),
        ("module m.b", "m.b", "forward"),
        ("aten::add", "m.b", "forward"),
        ("aten::loss", "", "other"),
        ("autograd::engine::evaluate_function: LossBackward0", "", "backward"),
        ("autograd::engine::evaluate_function: AddBackward0", "m.b", "backward"),
        ("autograd::engine::evaluate_function: MmBackward0", "m.a", "backward"),
        ("aten::mm", "m.a", "backward"),
        ("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "m.a", "backward"),
        ("Optimizer.step#AdamW.step", "", "optimizer"),
        ("aten::mul_", "", "optimizer"),
    ]


def test_a_module_within_a_node_is_computed_again() -> None:
    found = attributed(
        [
            step(300),
            module("m", 10, 90),
            Event("CheckpointFunction", 20, 80, sequence=3),
            node("CheckpointFunctionBackward", 100, 200, 3),
            module("m.a", 110, 130),
            Event("aten::mm", 115, 125, sequence=4),
            node("MmBackward0", 140, 180, 4),
            Event("aten::mm", 150, 170),
        ]
    )
    assert [each[1:] for each in found] == [
        ("", "other"),
        ("m", "forward"),
        ("m", "forward"),
        ("m", "backward"),
        ("m.a", "recompute"),
        ("m.a", "recompute"),
        ("m.a", "backward"),
        ("m.a", "backward"),
    ]


def test_a_node_whose_operator_nobody_saw_has_no_module() -> None:
    places = Attribution(events_of([step(100), node("MmBackward0", 10, 20, 99)]))
    assert places.module.tolist() == [0, 0]


def test_a_range_of_a_hosts_own_is_no_operator() -> None:
    events = events_of([step(10), Event("preprocess", 1, 5, scope=7), Event("aten::add", 2, 3)])
    assert Attribution(events).is_user.tolist() == [False, True, False]


def test_an_operator_that_makes_several_nodes_has_the_number_of_the_first() -> None:
    places = Attribution(
        events_of(
            [
                step(100),
                module("m", 5, 40),
                Event("aten::masked_fill_", 10, 20, sequence=3),
                node("CopySlices", 60, 70, 5),
            ]
        )
    )
    assert places.paths[places.module[3]] == "m"


def test_what_a_node_computes_again_outside_of_a_module_is_of_its_own() -> None:
    """As in Megatron, and in a layer of Hugging Face whose module is around the checkpoint."""
    found = attributed(
        [
            step(300),
            module("m", 10, 90),
            Event("CheckpointFunction", 20, 80, sequence=3),
            node("CheckpointFunctionBackward", 100, 200, 3),
            Event("aten::add", 115, 125, sequence=4),
            node("AddBackward0", 140, 180, 4),
        ]
    )
    assert [each[1:] for each in found[3:]] == [("m", "backward"), ("m", "recompute"), ("m", "backward")]


def test_a_function_in_python_that_a_node_calls_is_computed_again_only_if_it_has_a_node() -> None:
    found = attributed(
        [
            step(300),
            module("m", 10, 90),
            Event("_AllToAll", 20, 40, sequence=5),
            Event("aten::mm", 60, 80, sequence=6),
            node("MmBackward0", 100, 120, 6),
            Event("_Again", 105, 115, sequence=7),  # autograd is on: node 7 is its own
            node("_AgainBackward", 125, 135, 7),
            node("_AllToAllBackward", 140, 180, 5),
            Event("_AllToAll", 145, 175, sequence=8),  # autograd is off, and nobody ever has that number
            Event("c10d::alltoall_base_", 150, 170),
        ]
    )
    assert {(name, part) for name, _, part in found if not name.startswith("autograd")} == {
        ("flagscale_perf step", "other"),
        ("module m", "forward"),
        ("_AllToAll", "forward"),
        ("aten::mm", "forward"),
        ("_Again", "recompute"),
        ("_AllToAll", "backward"),
        ("c10d::alltoall_base_", "backward"),
    }
