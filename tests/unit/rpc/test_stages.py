"""The stages of a call."""

from __future__ import annotations

from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.rpc.stages import ALL_STAGES, OTHER, STAGES, stage_times
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
    assert times == (3 * MS, MS, 3500 * US, None, None, MS, MS, 500 * US)
