"""What of a collective is exposed."""

from __future__ import annotations

from flagscale_perf.profile.attribution import Attribution
from flagscale_perf.profile.collectives import Collective
from flagscale_perf.profile.communication import collectives_of
from flagscale_perf.profile.events import Events
from flagscale_perf.profile.overlap import exposed
from flagscale_perf.profile.pieces import Pieces
from flagscale_perf.profile.ranges import STEP
from flagscale_perf.profile.rows import rows_of
from tests.collective_events import E, events_of, executed

STEP_OF_1000 = E(STEP, 0, 1000, scope=7)


def found(made: list[E], *spans: tuple[int, int]) -> list[int | None]:
    """Exposed time of all-reduces that are executed so. All of it, and nothing else, is the step's
    communication.
    """
    runs = [executed("gloo:all_reduce", *span) for span in spans]
    events = events_of(sorted([STEP_OF_1000, *made, *runs], key=lambda each: each.start_ns))
    collectives = exposed_of(events)
    places = Attribution.of(events)
    rows = rows_of(events, places, Pieces.of(events, places, collectives))
    assert rows.communication_ns == sum(each.exposed_ns or 0 for each in collectives)
    return [each.exposed_ns for each in collectives]


def exposed_of(events: Events) -> list[Collective]:
    places = Attribution.of(events)
    collectives = collectives_of(events, places.nesting)
    return exposed(collectives, events, places, Pieces.of(events, places, collectives))


CALL = E("c10d::allreduce_", 100, 110)


def test_a_thread_that_waits_is_exposed_from_the_call_on() -> None:
    assert found([CALL, E("aten::mul", 305, 400)], (120, 300)) == [200]


def test_work_until_the_operation_is_over_hides_it() -> None:
    assert found([CALL, E("aten::mm", 115, 400)], (120, 300)) == [10]


def test_work_hides_what_it_covers_and_the_wait_after_it_is_exposed() -> None:
    assert found([CALL, E("aten::mm", 115, 250)], (120, 300)) == [60]


def test_a_wait_operator_is_no_work() -> None:
    """Its last 2 ns are spent on waiting, too."""
    wait = E("_c10d_functional::wait_tensor", 260, 302)
    assert found([CALL, E("aten::mm", 115, 250), wait], (120, 300)) == [10 + 42]


def test_two_waits_do_not_cover_the_same_time() -> None:
    assert found([CALL, E("c10d::allreduce_", 115, 120)], (120, 200), (130, 300)) == [90, 105]


def test_a_call_that_lasts_as_long_as_the_operation_is_exposed_whole() -> None:
    assert found([E("c10d::allreduce_", 100, 300)], (100, 300)) == [200]


def test_calls_around_it_are_its_own() -> None:
    """A functional collective has c10d's call in it, and its operator begins and ends around that."""
    made = [E("_c10d_functional::all_reduce", 100, 150), E("c10d::allreduce_", 120, 140)]
    assert found(made, (130, 300)) == [200]


def test_on_a_device_other_kernels_hide_it() -> None:
    events = events_of(
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
    assert [each.exposed_ns for each in exposed_of(events_of(made, kernels=kernels))] == [100, 50]


def test_what_the_host_executes_beside_a_device_is_exposed_there() -> None:
    run = executed("gloo:all_reduce", 120, 300)
    events = events_of([STEP_OF_1000, CALL, run], kernels=[("gemm", 0, 400, -1)])
    assert [each.exposed_ns for each in exposed_of(events)] == [200]


def test_a_kernel_that_nobody_runs_says_nothing() -> None:
    """Without a device, what is executed by nothing on the host is not known."""
    events = events_of([STEP_OF_1000])
    places, lost = Attribution.of(events), Collective(-1, "ncclDevKernel_AllGather", "", 0, 10)
    [each] = exposed([lost], events, places, Pieces.of(events, places))
    assert each.exposed_ns is None
