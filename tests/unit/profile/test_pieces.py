"""A step's time, cut so that all of it belongs to one event."""

from __future__ import annotations

import pytest

from flagscale_perf.profile.attribution import Attribution
from flagscale_perf.profile.communication import Collective, collectives_of
from flagscale_perf.profile.events import Events
from flagscale_perf.profile.pieces import Pieces, exposed
from flagscale_perf.profile.ranges import STEP
from flagscale_perf.profile.records import Sort
from flagscale_perf.profile.rows import rows_of
from tests.collective_events import E, executed
from tests.collective_events import events_of as columns_of
from tests.profiled_events import Event, events_of, module, node, step


def cut(events: list[Event]) -> dict[tuple[str, str], int]:
    """Microseconds by sort and the name of what they were spent on."""
    columns = events_of(events)
    places = Attribution(columns)
    pieces = Pieces.of(columns, places, collectives_of(columns, places.nesting))
    sums: dict[tuple[str, str], int] = {}
    for op, sort, ns in zip(pieces.op, pieces.sort, pieces.duration_ns, strict=True):
        key = Sort(sort).name, columns.names[columns.name[op]].rpartition(" ")[2]
        sums[key] = sums.get(key, 0) + int(ns) // 1000
    return {key: value for key, value in sums.items() if value}


def test_the_pieces_make_the_step() -> None:
    found = cut(
        [
            step(200),
            module("m", 10, 60),
            Event("aten::linear", 20, 50),
            Event("aten::mm", 25, 45),
            node("A", 100, 120),
            node("B", 125, 150),
            Event("somewhere else", 0, 190, thread=9),
        ]
    )
    assert found == {
        ("HOST", "step"): 10 + 40 + 50,
        ("HOST", "m"): 20,
        ("OPERATOR", "aten::linear"): 10,
        ("OPERATOR", "aten::mm"): 20,
        ("OPERATOR", "A"): 20,
        ("OPERATOR", "B"): 25,
        ("ENGINE", "step"): 5,
    }
    assert sum(found.values()) == 200


def test_python_that_a_collective_ends_was_waiting_for_it() -> None:
    """Called at 20 in 5, and over at 70 on another thread: 45 of waiting, and 10 of Python after it. The
    second one ends while an operator runs: nobody waited.
    """
    found = cut(
        [
            step(200),
            Event("c10d::allreduce_", 20, 25),
            Event("gloo:all_reduce", 24, 70, thread=2, is_async=True),
            Event("aten::mm", 80, 180),
            Event("gloo:broadcast", 75, 170, thread=2, is_async=True),
        ]
    )
    assert found == {
        ("HOST", "step"): 20 + 10 + 20,
        ("COMMUNICATION", "c10d::allreduce_"): 5,
        ("COMMUNICATION", "gloo:all_reduce"): 45,
        ("OPERATOR", "aten::mm"): 100,
    }
    assert sum(found.values()) == 200


def test_a_function_of_autograd_waits_as_python_does() -> None:
    """Megatron's tensor parallelism calls its collectives in functions, forward and backward."""
    found = cut(
        [
            step(300),
            Event("_Reduce", 10, 90),
            Event("c10d::allreduce_", 20, 25),
            Event("gloo:all_reduce", 24, 70, thread=2, is_async=True),
            node("_CopyBackward", 100, 200),
            Event("_CopyBackward", 105, 195),
            Event("c10d::allreduce_", 110, 115),
            Event("gloo:all_reduce", 112, 180, thread=2, is_async=True),
        ]
    )
    assert found["COMMUNICATION", "gloo:all_reduce"] == 45 + 65
    assert found["OPERATOR", "_Reduce"] == 80 - 5 - 45
    assert sum(found.values()) == 300


def test_a_wait_begins_with_the_last_thing_that_was_done_not_with_the_operation() -> None:
    """A busy library executes late what it was asked for: the caller waits all the same."""
    found = cut(
        [
            step(200),
            Event("c10d::broadcast_", 20, 25),
            Event("gloo:broadcast", 98, 100, thread=2, is_async=True),
            Event("aten::mm", 110, 180),
        ]
    )
    assert found["COMMUNICATION", "gloo:broadcast"] == 75
    assert found["HOST", "step"] == 20 + 10 + 20


def test_waits_that_end_in_one_piece_follow_each_other() -> None:
    """Three are asked for at once and waited for in turn, as gradients are."""
    found = cut(
        [
            step(300),
            Event("c10d::allreduce_", 10, 12),
            Event("gloo:all_reduce", 11, 60, thread=2, is_async=True),
            Event("c10d::send", 20, 22),
            Event("gloo:send", 21, 90, thread=2, is_async=True),
            Event("c10d::recv_", 30, 32),
            Event("gloo:recv", 31, 80, thread=2, is_async=True),
            Event("aten::mm", 100, 200),
        ]
    )
    assert found["COMMUNICATION", "gloo:all_reduce"] == 60 - 32
    assert found["COMMUNICATION", "gloo:recv"] == 20
    assert found["COMMUNICATION", "gloo:send"] == 10
    assert sum(found.values()) == 300


def test_what_runs_in_a_collectives_call_is_the_calls() -> None:
    """Such as the copy that gloo makes of what it scatters."""
    found = cut([step(100), Event("c10d::_reduce_scatter_base_", 10, 50), Event("aten::clone", 20, 45)])
    assert found == {("HOST", "step"): 60, ("COMMUNICATION", "c10d::_reduce_scatter_base_"): 40}


def test_the_backward_on_a_thread_of_its_own_is_not_counted_as_waiting_too() -> None:
    found = cut(
        [
            step(200),
            Event("aten::loss", 10, 20),
            node("A", 40, 70, thread=5),
            Event("aten::mm", 50, 60, thread=5),
            node("B", 80, 90, thread=5),
        ]
    )
    assert found == {
        ("HOST", "step"): 200 - 10 - 50,
        ("OPERATOR", "aten::loss"): 10,
        ("OPERATOR", "A"): 20,
        ("OPERATOR", "aten::mm"): 10,
        ("ENGINE", "B"): 10,
        ("OPERATOR", "B"): 10,
    }
    assert sum(found.values()) == 200


def test_without_a_range_of_the_step_there_are_no_pieces() -> None:
    columns = events_of([Event("aten::mm", 0, 10)])
    with pytest.raises(ValueError, match="no range"):
        Pieces.of(columns, Attribution(columns))


STEP_OF_1000 = E(STEP, 0, 1000, scope=7)


def found(made: list[E], *spans: tuple[int, int]) -> list[int | None]:
    """Exposed time of all-reduces that are executed so. All of it, and nothing else, is the step's
    communication.
    """
    runs = [executed("gloo:all_reduce", *span) for span in spans]
    events = columns_of(sorted([STEP_OF_1000, *made, *runs], key=lambda each: each.start_ns))
    collectives = exposed_of(events)
    places = Attribution(events)
    rows = rows_of(events, places, Pieces.of(events, places, collectives))
    assert rows.parts_ns["communication"] == sum(each.exposed_ns or 0 for each in collectives)
    return [each.exposed_ns for each in collectives]


def exposed_of(events: Events) -> list[Collective]:
    places = Attribution(events)
    collectives = collectives_of(events, places.nesting)
    return exposed(collectives, events, places, Pieces.of(events, places, collectives))


CALL = E("c10d::allreduce_", 100, 110)


WAIT = E("_c10d_functional::wait_tensor", 260, 302)


@pytest.mark.parametrize(
    ("made", "spans", "exposed_ns"),
    [
        ([CALL, E("aten::mul", 305, 400)], [(120, 300)], [200]),
        ([CALL, E("aten::mm", 115, 400)], [(120, 300)], [10]),
        ([CALL, E("aten::mm", 115, 250)], [(120, 300)], [60]),
        ([CALL, E("aten::mm", 115, 250), WAIT], [(120, 300)], [10 + 42]),  # its last 2 ns are waiting, too
        ([CALL, E("c10d::allreduce_", 115, 120)], [(120, 200), (130, 300)], [90, 105]),
        ([E("c10d::allreduce_", 100, 300)], [(100, 300)], [200]),
        # a functional collective has c10d's call in it, and its operator begins and ends around that
        (
            [E("_c10d_functional::all_reduce", 100, 150), E("c10d::allreduce_", 120, 140)],
            [(130, 300)],
            [200],
        ),
    ],
    ids=[
        "a thread that waits is exposed from the call on",
        "work until the operation is over hides it",
        "work hides what it covers, and the wait after it is exposed",
        "a wait operator is no work",
        "two waits do not cover the same time",
        "a call that lasts as long as the operation is exposed whole",
        "calls around it are its own",
    ],
)
def test_what_is_exposed(made: list[E], spans: list[tuple[int, int]], exposed_ns: list[int]) -> None:
    assert found(made, *spans) == exposed_ns


def test_on_a_device_other_kernels_hide_it() -> None:
    events = columns_of(
        [STEP_OF_1000, CALL],
        kernels=[
            ("gemm", 0, 150, -1),
            ("gemm", 100, 160, -1),
            ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 120, 300, 1),
            ("gemm", 200, 220, -1),
        ],
    )
    [each] = exposed_of(events)
    assert each.exposed_ns == 180 - 40 - 20


def test_two_streams_collectives_do_not_expose_the_same_time_twice() -> None:
    """From 120 to 300 and from 150 to 350, beside a product up to 200: together 150 of the device's time."""
    made = [STEP_OF_1000, CALL, E("c10d::allreduce_", 111, 115)]
    kernels = [
        ("gemm", 0, 200, -1),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 120, 300, 1),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 150, 350, 2),
    ]
    assert [each.exposed_ns for each in exposed_of(columns_of(made, kernels=kernels))] == [100, 50]


def test_what_the_host_executes_beside_a_device_is_exposed_there() -> None:
    run = executed("gloo:all_reduce", 120, 300)
    events = columns_of([STEP_OF_1000, CALL, run], kernels=[("gemm", 0, 400, -1)])
    assert [each.exposed_ns for each in exposed_of(events)] == [200]


def test_a_kernel_that_nobody_runs_says_nothing() -> None:
    """Without a device, what is executed by nothing on the host is not known."""
    events = columns_of([STEP_OF_1000])
    places, lost = Attribution(events), Collective(-1, "ncclDevKernel_AllGather", "", 0, 10)
    [each] = exposed([lost], events, places, Pieces.of(events, places))
    assert each.exposed_ns is None
