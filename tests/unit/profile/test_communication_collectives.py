"""What several collectives tell of each other."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.profile.communication import Collective, filled, numbered

REDUCED = Collective(0, "gloo:all_reduce", "c10d::allreduce_", 0, 10, "TP 0-1")
SENT = Collective(1, "gloo:send", "c10d::send", 0, 10, peer=1, is_send=1)


def test_ordinals_count_group_operation_and_peer() -> None:
    other = replace(SENT, peer=2)
    made = numbered([REDUCED, SENT, REDUCED, other, SENT, replace(REDUCED, group="DP 0-1")])
    assert [each.ordinal for each in made] == [0, 0, 1, 0, 1, 0]


def test_the_step_with_shapes_fills_what_nobody_has_said() -> None:
    unknown = replace(SENT, peer=None)
    said = replace(REDUCED, size_bytes=7)
    shaped = [replace(REDUCED, size_bytes=8), replace(SENT, size_bytes=16), replace(SENT, size_bytes=32)]
    assert filled([said, unknown, unknown], shaped) == [
        said,
        replace(SENT, size_bytes=16),
        replace(SENT, size_bytes=32),
    ]


def test_a_step_that_calls_something_else_fills_nothing() -> None:
    assert filled([REDUCED], [replace(REDUCED, size_bytes=8), SENT]) == [REDUCED]


def test_the_operation_is_the_executed_one() -> None:
    assert replace(REDUCED, call="c10d::_reduce_scatter_base_").operation == "all_reduce"
    assert replace(REDUCED, op="nccl:coalesced").operation == "all_reduce"
