"""What a client knows of its server after the handshake, as the facts of its session."""

from __future__ import annotations

import json
from typing import Any

from flagscale_perf.rpc.facts import RpcFacts
from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from tensor_rpc.client import Hello

_COPY_BYTES, _COPIES = 16 << 20, 4  # more than a cache holds


def facts_of(hello: Hello) -> RpcFacts:
    """Takes some milliseconds: one copy of memory is timed."""
    return RpcFacts(
        transport=hello.transport,
        endpoint=hello.endpoint,
        payload=hello.payload,
        control="zeromq",
        device=hello.server.device,
        dtype=hello.server.dtype,
        latency_ns=hello.latency_ns,
        epoch=hello.server.epoch,
        client=hello.server.client,
        server_pid=hello.process,
        copy_bytes_per_s=_copy_speed(),
        model=_object(hello.server.description),
    )


def _object(text: str) -> dict[str, Any] | None:
    """What a server says about its model, if it is a JSON object."""
    try:
        content = json.loads(text)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _copy_speed() -> int:
    """Bytes per second of one copy in this machine's memory, the best of several; takes some milliseconds."""
    source, target = bytes(_COPY_BYTES), memoryview(bytearray(_COPY_BYTES))
    took_ns = []
    for _ in range(_COPIES):
        begin_ns = monotonic_ns()
        target[:] = source
        took_ns.append(monotonic_ns() - begin_ns)
    return round(_COPY_BYTES * NS_PER_S / max(1, min(took_ns)))
