"""The stages of a call."""

from __future__ import annotations

import pytest

from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.rpc.stages import ALL_STAGES, NOTHING_TOLD, OTHER, STAGES, Told, stage_times, told_apart
from tests.rpc_sessions import MS, US, make_call


def test_every_stage_is_a_field() -> None:
    assert [f"{stage.name}_ns" in CallRecord._fields for stage in STAGES] == [True] * 7
    assert [stage.name for stage in ALL_STAGES[-1:]] == [OTHER]


def test_they_add_up_to_the_call() -> None:
    times = stage_times(make_call())
    assert times == (3 * MS, MS, 2 * MS, 100 * US, 1400 * US, MS, MS, 500 * US)
    assert sum(times) == 10 * MS


def test_what_the_server_did_not_say_is_no_stage() -> None:
    times = stage_times(make_call(queue_ns=None, server_ns=None, wait_ns=3500 * US))
    assert times == (3 * MS, MS, 3500 * US, 0, 0, MS, MS, 500 * US)


@pytest.mark.parametrize(
    ("send", "whole", "told", "split"),
    [
        (5, 100, (10, 50, 20), (5, 35, 10, 50)),
        (48, 100, (0, 27, 6), (6, 67, 0, 27)),  # lost the processor inside `send`
        (48, 100, (10, 27, 30), (20, 43, 10, 27)),  # and the server was busy meanwhile
        (48, 60, (0, 27, 0), (33, 0, None, 27)),  # on another clock
        (5, 100, (0, 27, 80), (5, 95, None, None)),  # ends after its reply
        (5, 20, (0, 27, 0), (5, 15, None, None)),  # longer than the call
        (5, 100, (30, 27, 20), (5, 95, None, None)),  # waited longer than until it began
        (5, 100, NOTHING_TOLD, (5, 95, None, None)),
    ],
)
def test_what_the_server_says_is_its_time(send: int, whole: int, told: Told, split: tuple[object]) -> None:
    assert told_apart(send, whole, told) == split
    assert sum(part or 0 for part in told_apart(send, whole, told)) == whole
