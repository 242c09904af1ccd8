"""What a client knows of its server."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from tensor_rpc import wire
from tensor_rpc.client import Hello
from tensor_rpc.facts import facts_of

from flagscale_perf.rpc.facts import RpcFacts


def test_a_client_knows_its_server_after_they_met() -> None:
    said = wire.Welcome(
        wire.PROTOCOL,
        3,
        77,
        4712,
        "",
        "cuda:0",
        "bfloat16",
        '{"layers": 16}',
        ("Init",),
        1 << 20,
        2,
        None,
        None,
    )
    hello = Hello("ipc:///tmp/x", "IPC", "shared", 4712, 25_000, said)
    facts = facts_of(hello)
    assert facts.copy_bytes_per_s is not None and facts.copy_bytes_per_s > 10**7
    assert replace(facts, copy_bytes_per_s=None) == RpcFacts(
        transport="IPC",
        endpoint="ipc:///tmp/x",
        payload="shared",
        control="zeromq",
        device="cuda:0",
        dtype="bfloat16",
        latency_ns=25_000,
        epoch=77,
        client=3,
        server_pid=4712,
        model={"layers": 16},
    )
    assert facts_of(hello._replace(server=msgspec.structs.replace(said, description="no JSON"))).model is None
