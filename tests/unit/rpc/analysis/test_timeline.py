"""Calls on a timeline."""

from __future__ import annotations

from typing import Any

from flagscale_perf.analysis.timeline import Item
from flagscale_perf.rpc.analysis.timeline import timeline
from tests.rpc_sessions import MS, US, make_call, make_served, make_session
from tests.traces import Recorded


def items(*records: Any, **facts: Any) -> list[Item]:
    session: Any = Recorded(make_session(**facts), *records)
    return [item for item in timeline(session).items(session) if isinstance(item, Item)]


def test_stages_lie_end_to_end_in_their_call() -> None:
    (call,) = items(make_call(1))
    assert (call.name, call.begin_ns, call.end_ns, call.kind) == ("BatchLinear", 10 * MS, 20 * MS, "client")
    assert [part.name for part in call.parts] == [
        "serialize",
        "send",
        "wait",
        "queue",
        "server",
        "receive",
        "deserialize",
    ]
    assert call.parts[0].begin_ns == call.begin_ns and call.parts[-1].end_ns == call.end_ns - 500 * US
    assert all(one.end_ns == other.begin_ns for one, other in zip(call.parts, call.parts[1:], strict=False))


def test_the_servers_part_begins_with_its_turn() -> None:
    (served,) = items(make_served(1))
    assert (served.begin_ns, served.end_ns) == (14 * MS + 100 * US, 15_500_000)


def test_a_call_and_its_side_at_the_server_are_the_ends_of_one_arrow() -> None:
    """Both know client and number; a caller that does not know which client it is, the number alone."""
    (call,) = items(make_call(7, client=3))
    (other,) = items(make_call(7, client=0))
    (served,) = items(make_served(7, client=3))
    keys = {end.key for end in served.ends}
    assert {end.is_source for end in served.ends} == {False} and len(keys) == 2
    for one in (call, other):
        (end,) = one.ends
        assert end.is_source and end.key in keys and end.at_ns == one.begin_ns
