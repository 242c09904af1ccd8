"""What a session knows when it begins."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.rpc.facts import RpcFacts, transport_of
from flagscale_perf.rpc.options import Hello
from tests.rpc_sessions import FACTS


def test_they_come_back_from_a_header_of_any_version() -> None:
    assert RpcFacts.of(FACTS.as_dict()) == FACTS
    assert RpcFacts.of({"transport": "TCP", "of the future": 1}) == RpcFacts(transport="TCP")


def test_the_transport_is_the_endpoints() -> None:
    ends = ["ipc:///tmp/x", "tcp://127.0.0.1:5555", "inproc://x"]
    assert list(map(transport_of, ends)) == ["IPC", "TCP", "INPROC"]


def test_a_client_knows_its_server_after_they_met() -> None:
    hello = Hello(
        "ipc:///tmp/x", "IPC", "shared", "unix", "cuda:0", "bfloat16", "llama", '{"layers": 16}', ("Init",),
        1 << 20, 1 << 26, 2, 77, 3, 4712, 25_000, 4096, 65536, 10**6,
    )  # fmt: skip
    facts = RpcFacts.of_hello(hello)
    assert facts.copy_bytes_per_s is not None and facts.copy_bytes_per_s > 10**7
    assert replace(facts, copy_bytes_per_s=None) == RpcFacts(
        transport="IPC", endpoint="ipc:///tmp/x", payload="shared", control="unix", device="cuda:0",
        dtype="bfloat16", latency_ns=25_000, epoch=77, client=3, server_pid=4712, model={"layers": 16},
    )  # fmt: skip
    assert RpcFacts.of_hello(hello._replace(description="no JSON")).model is None
