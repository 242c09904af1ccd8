"""Calls on a timeline."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.timeline import Span
from flagscale_perf.rpc.analysis.timeline import timeline
from tests.rpc_sessions import MS, US, make_call, make_served, make_session


def spans(*records) -> list[Span]:
    session = cast(Session, SimpleNamespace(header=make_session()))
    return [item for item in timeline(session).items(records) if isinstance(item, Span)]


def test_stages_lie_end_to_end_in_their_call() -> None:
    call, *stages = spans(make_call(1))
    assert (call.name, call.start_ns, call.end_ns) == ("BatchLinear", 10 * MS, 20 * MS)
    assert [stage.name for stage in stages] == [
        "serialize",
        "send",
        "wait",
        "queue",
        "server",
        "receive",
        "deserialize",
    ]
    assert stages[0].start_ns == call.start_ns and stages[-1].end_ns == call.end_ns - 500 * US
    assert all(one.end_ns == other.start_ns for one, other in zip(stages, stages[1:], strict=False))


def test_calls_in_flight_at_one_time_are_told_apart() -> None:
    first, *_, second = spans(make_call(1), make_call(2, start_ns=15 * MS))
    assert (first.category, second.category, second.key) == ("", "in flight", "2")


def test_the_servers_part_begins_with_its_turn() -> None:
    (served,) = spans(make_served(1))
    assert (served.start_ns, served.end_ns) == (14 * MS + 100 * US, 15_500_000)
