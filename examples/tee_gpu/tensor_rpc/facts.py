"""What a client knows of its server after the handshake, as the facts of its session."""

from __future__ import annotations

import json
from typing import Any

from flagscale_perf.rpc.facts import RpcFacts, copy_speed
from tensor_rpc.options import Hello


def facts_of(hello: Hello) -> RpcFacts:
    """Takes some milliseconds: one copy of memory is timed."""
    return RpcFacts(
        transport=hello.transport,
        endpoint=hello.endpoint,
        payload=hello.payload,
        control="zeromq",
        device=hello.device,
        dtype=hello.dtype,
        latency_ns=hello.latency_ns,
        epoch=hello.epoch,
        client=hello.client,
        server_pid=hello.process,
        copy_bytes_per_s=copy_speed(),
        model=_object(hello.description),
    )


def _object(text: str) -> dict[str, Any] | None:
    """What a server says about its model, if it is a JSON object."""
    try:
        content = json.loads(text)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None
