"""What a session knows when it begins."""

from __future__ import annotations

from flagscale_perf.rpc.facts import RpcFacts, transport_of
from tests.rpc_sessions import FACTS


def test_they_come_back_from_a_header_of_any_version() -> None:
    assert RpcFacts.of(FACTS.as_dict()) == FACTS
    assert RpcFacts.of({"transport": "TCP", "of the future": 1}) == RpcFacts(transport="TCP")


def test_the_transport_is_the_endpoints() -> None:
    ends = ["ipc:///tmp/x", "tcp://127.0.0.1:5555", "inproc://x"]
    assert list(map(transport_of, ends)) == ["IPC", "TCP", "INPROC"]
