"""What is known of a session of calls when it begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

CLIENT, SERVER, PROBE = "client", "server", "probe"  # who records


@dataclass(frozen=True)
class RpcFacts:
    """The facts of a run header. None for what is not known.

    Attributes:
        role: `CLIENT`, `SERVER` or `PROBE`: somebody else's sockets.
        transport: "IPC", "TCP" or "INPROC", of the endpoint that is really connected.
        endpoint: that endpoint.
        payload: how arrays travel: "shared", "frames" or "msgpack".
        control: how messages travel: "zeromq" or "unix".
        device, dtype: of the server.
        latency_ns: of an empty call, measured in the handshake.
        epoch: of the server: another one for each of its starts.
        client: number of this connection at the server.
        receive_has_wait: `receive_ns` holds the wait for the reply, too, as nobody told them apart.
        copy_bytes_per_s: of one copy in this machine's memory, measured when the session began.
        model: what the server says about its model.
    """

    role: str = CLIENT
    transport: str = ""
    endpoint: str = ""
    payload: str | None = None
    control: str | None = None
    device: str | None = None
    dtype: str | None = None
    latency_ns: int | None = None
    epoch: int | None = None
    client: int | None = None
    receive_has_wait: bool = False
    copy_bytes_per_s: int | None = None
    model: dict[str, Any] | None = None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> RpcFacts:
        """From a run header of any version: what is missing there is not known."""
        return cls(
            **{each.name: facts[each.name] for each in fields(cls) if facts.get(each.name) is not None}
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def transport_of(endpoint: str) -> str:
    """`IPC` for `ipc:///tmp/server`."""
    return endpoint.partition("://")[0].upper()
