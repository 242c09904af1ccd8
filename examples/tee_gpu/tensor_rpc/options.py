"""The options of a client and a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from tensor_rpc.errors import RpcError

Payload = Literal["auto", "msgpack", "frames", "shared"]
Item = int | float | str | bool
Value = Item | list[Item]  # of an argument
Arguments = Mapping[str, Value]
MIB = 2**20
MOST_SLOTS = 8


@dataclass(frozen=True)
class ClientOptions:
    """How to reach a server.

    Attributes:
        endpoint: as `ipc:///run/user/1000/x.ipc` or `tcp://127.0.0.1:5555`.
        payload: how arrays travel. "shared": in the server's shared memory, where each is copied once at
            most; "frames": as frames of ZeroMQ; "msgpack": as bytes within one msgpack message, the baseline;
            "auto": shared where the server is on this machine, else frames.
        timeout_s: of a call, unless it says otherwise.
        connect_timeout_s: how long to wait for a server that is not there yet.
        max_message_bytes: of arrays, in a reply; more is refused by the server before it is sent.
        allow_remote: connect to another machine over tcp, where nothing is encrypted.
    """

    endpoint: str
    payload: Payload = "auto"
    timeout_s: float = 60.0
    connect_timeout_s: float = 30.0
    max_message_bytes: int = 1024 * MIB
    allow_remote: bool = False

    def __post_init__(self) -> None:
        if self.payload not in get_args(Payload):
            raise RpcError(f"payload is {self.payload!r}; write one of {', '.join(get_args(Payload))}")


@dataclass(frozen=True)
class ServerOptions:
    """How to serve.

    Attributes:
        endpoint: see `ClientOptions.endpoint`.
        max_message_bytes: of arrays, in one call or one reply.
        arena_bytes: of shared memory for the calls of one client, and as much for the replies; 0 for none. It
            is divided evenly among `slots`: an array that does not fit its share goes as a frame.
        slots: calls of one client that may be under way.
        max_clients: more are refused.
        device, dtype: what the methods compute on and in, as told to clients.
        description: of the model, as JSON; told to clients.
        allow_remote: bind tcp to more than this machine; nothing is encrypted there.
    """

    endpoint: str
    max_message_bytes: int = 256 * MIB
    arena_bytes: int = 64 * MIB
    slots: int = 2
    max_clients: int = 8
    device: str = "cpu"
    dtype: str = ""
    description: str = "{}"
    allow_remote: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= MOST_SLOTS:
            raise RpcError(f"slots is {self.slots}; write 1 to {MOST_SLOTS}")
