"""Events of one rank as collectives; real ones are in tests/processes/test_collectives.py."""

from __future__ import annotations

from flagscale_perf.profile.communication import Collective, collectives_of
from flagscale_perf.profile.events import Events, Nesting
from flagscale_perf.profile.flight import Flown, Groups
from flagscale_perf.profile.operations import Group, named
from tests.collective_events import E, events_of, executed

TP, PP = Group("TENSOR_MODEL_PARALLEL_GROUP", (0, 2)), Group("PIPELINE_MODEL_PARALLEL_GROUP", (0, 1))


def found(events: Events, flown: list[Flown] | None = None, groups: Groups | None = None) -> list[Collective]:
    return collectives_of(events, Nesting.of(events), flown or [], groups)


def test_call_and_execution_are_one_with_group_and_bytes_of_the_flight_recorder() -> None:
    events = events_of([E("c10d::allreduce_", 100, 110), executed("gloo:all_reduce", 120, 300)])
    flown = [
        Flown(50, "gloo:all_reduce", "TP 0-1", 2, 6, 8),
        Flown(105, "gloo:all_reduce", "TP 0-1", 2, 7, 4096),
    ]
    far = Flown(900_000_000, "gloo:all_reduce", "TP 0-1", 2, 8, 8)
    assert found(events, [*flown[1:], far]) == [
        Collective(0, "gloo:all_reduce", "c10d::allreduce_", 120, 180, "TP 0-1", 2, 7, 0, None, None, 4096)
    ]


def test_a_functional_collective_is_counted_once_and_its_wait_not_at_all() -> None:
    events = events_of(
        [
            E("_c10d_functional::all_reduce", 100, 150),
            E("aten::clone", 105, 110),
            E("c10d::allreduce_", 120, 140),
            executed("gloo:all_reduce", 130, 300),
            E("_c10d_functional::wait_tensor", 200, 310),
        ]
    )
    assert found(events) == [Collective(2, "gloo:all_reduce", "_c10d_functional::all_reduce", 130, 170)]


def test_gloo_executes_reduce_scatter_as_all_reduce() -> None:
    events = events_of(
        [
            E("c10d::_reduce_scatter_base_", 100, 110),
            E("c10d::allreduce_", 111, 115),
            executed("gloo:all_reduce", 120, 300),
            executed("gloo:all_reduce", 310, 400),
        ]
    )
    assert [(each.op, each.call, each.start_ns) for each in found(events)] == [
        ("gloo:all_reduce", "c10d::_reduce_scatter_base_", 120),
        ("gloo:all_reduce", "c10d::allreduce_", 310),
    ]


def test_point_to_point_begins_with_the_call_and_has_the_pipelines_group() -> None:
    events = events_of([E("c10d::recv_", 100, 110), executed("gloo:recv", 108, 300)])
    groups = Groups(1, {"1": TP, "2": PP, "3": Group("DP", (0,))})
    assert found(events, groups=groups) == [
        Collective(0, "gloo:recv", "c10d::recv_", 100, 200, str(PP), 2, peer=0, is_send=0)
    ]
    assert [each.group for each in found(events, groups=Groups(1, {"1": TP, "2": Group("X", (0, 1))}))] == [
        ""
    ]


def test_the_step_with_shapes_has_bytes_and_peers() -> None:
    events = events_of(
        [
            E("c10d::send", 100, 110, values=[None, None, 3, 0]),
            executed("gloo:send", 105, 200, shapes=[[4, 8]], dtypes=["float"]),
            E("_C::shm_allreduce", 300, 400, shapes=[[16], []], dtypes=["c10::BFloat16", "Scalar"]),
        ],
        shapes=True,
    )
    assert [(each.op, each.peer, each.size_bytes) for each in found(events)] == [
        ("gloo:send", 3, 128),
        ("_C::shm_allreduce", None, 32),
    ]


def test_vllms_own_are_executed_where_they_are_called() -> None:
    events = events_of(
        [
            E("vllm::all_reduce", 90, 410),
            E("_C::shm_allreduce", 100, 400),
            executed("gloo:all_reduce", 200, 300),
        ]
    )
    assert [(each.op, each.call, each.total_ns) for each in found(events)] == [
        ("_C::shm_allreduce", "vllm::all_reduce", 300),
        ("gloo:all_reduce", "gloo:all_reduce", 100),  # begun before this step
    ]


def test_on_a_device_the_kernels_are_the_operation() -> None:
    said = {
        "Process Group Name": '"2"',
        "Group size": 2,
        "dtype": "BFloat16",
        "In msg nelems": 8,
        "Out msg nelems": 16,
        "Seq": 5,
    }
    events = events_of(
        [
            E("c10d::_allgather_base_", 100, 150),
            E("record_param_comms", 110, 140, metadata=said),
            E("nccl:_all_gather_base", 111, 139, scope=7),
            E("vllm::all_reduce", 200, 250),
        ],
        kernels=[
            ("copy", 160, 170, 0),
            ("ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", 180, 280, 1),
            ("nobody_knows_this_one", 290, 320, 3),
            ("ncclDevKernel_Broadcast_RING_LL", 400, 450, -1),
        ],
    )
    assert found(events, groups=Groups(0, {"2": PP})) == [
        Collective(
            0, "nccl:_all_gather_base", "c10d::_allgather_base_", 180, 100, str(PP), 2, 5, size_bytes=32
        ),
        Collective(3, "nobody_knows_this_one", "vllm::all_reduce", 290, 30),
        Collective(-1, "ncclDevKernel_Broadcast_RING_LL", "", 400, 50),
    ]


def test_which_operators_rows_are_communication() -> None:
    names = ["c10d::send", "gloo:send", "_c10d_functional::wait_tensor", "_C::shm_gather", "aten::mm"]
    assert [named(name) is not None for name in names] == [True, True, True, True, False]


def test_a_step_without_any() -> None:
    assert found(events_of([E("aten::mm", 0, 10)])) == []
