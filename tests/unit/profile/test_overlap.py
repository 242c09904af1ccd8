"""What of a collective is exposed."""

from __future__ import annotations

from flagscale_perf.profile.collectives import Collective
from flagscale_perf.profile.events import Nesting
from flagscale_perf.profile.overlap import exposed
from tests.collective_events import E, events_of

MODULE = E("module layer", 0, 1000, scope=7)


def found(made: list[E], *spans: tuple[int, int]) -> list[int | None]:
    """Exposed time of operations with these spans, each called by the events named c10d in their order."""
    events = events_of(made)
    calls = [index for index, each in enumerate(made) if each.name.startswith("c10d::")]
    collectives = [
        Collective(call, "gloo:all_reduce", "c10d::allreduce_", begin, end - begin)
        for call, (begin, end) in zip(calls, spans, strict=True)
    ]
    return [each.exposed_ns for each in exposed(collectives, events, Nesting.of(events))]


CALL = E("c10d::allreduce_", 100, 110)


def test_a_thread_that_waits_is_exposed_from_the_call_on() -> None:
    assert found([MODULE, CALL, E("aten::mul", 305, 400)], (120, 300)) == [200]


def test_work_until_the_operation_is_over_hides_it() -> None:
    assert found([MODULE, CALL, E("aten::mm", 115, 400)], (120, 300)) == [10]


def test_work_hides_what_it_covers_and_the_wait_after_it_is_exposed() -> None:
    assert found([MODULE, CALL, E("aten::mm", 115, 250)], (120, 300)) == [60]


def test_a_wait_operator_is_no_work() -> None:
    wait = E("_c10d_functional::wait_tensor", 260, 302)
    assert found([MODULE, CALL, E("aten::mm", 115, 250), wait], (120, 300)) == [50]


def test_two_waits_do_not_cover_the_same_time() -> None:
    assert found([MODULE, CALL, E("c10d::allreduce_", 115, 120)], (120, 200), (130, 300)) == [90, 105]


def test_a_call_that_lasts_as_long_as_the_operation_is_exposed_whole() -> None:
    assert found([MODULE, E("c10d::recv_", 100, 300)], (100, 300)) == [200]


def test_on_a_device_other_kernels_hide_it() -> None:
    made = [MODULE, CALL]
    events = events_of(
        made,
        kernels=[
            ("gemm", 0, 150, -1),
            ("gemm", 100, 160, -1),
            ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 120, 300, 1),
            ("gemm", 200, 220, -1),
        ],
    )
    collective = Collective(1, "nccl:all_reduce", "c10d::allreduce_", 120, 180)
    [each] = exposed([collective], events, Nesting.of(events))
    assert each.exposed_ns == 180 - 40 - 20


def test_one_whose_call_nobody_knows_says_nothing() -> None:
    events = events_of([MODULE])
    [each] = exposed([Collective(-1, "ncclDevKernel_AllGather", "", 0, 10)], events, Nesting.of(events))
    assert each.exposed_ns is None
