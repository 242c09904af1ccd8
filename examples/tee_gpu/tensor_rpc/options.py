"""The options of a client and a server, and what they tell each other in the handshake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

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
        for name in ("timeout_s", "connect_timeout_s", "max_message_bytes"):
            _positive(name, getattr(self, name))


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
        _positive("max_message_bytes", self.max_message_bytes)
        _positive("max_clients", self.max_clients)
        if not 1 <= self.slots <= MOST_SLOTS:
            raise RpcError(f"slots is {self.slots}; write 1 to {MOST_SLOTS}")
        if self.arena_bytes < 0:
            raise RpcError(f"arena_bytes is {self.arena_bytes}; write 0 for none, or a number of bytes")


class Hello(NamedTuple):
    """What a client knows of its server after the handshake.

    Attributes:
        endpoint: the actual one.
        transport: "IPC" or "TCP".
        payload: "shared", "frames" or "msgpack": how arrays travel.
        device, dtype, description: as the server's options say.
        methods: names, each at the place of its number.
        max_message_bytes: of arrays in a call.
        slots: calls that may be under way.
        epoch: of the server; another one after it was started again.
        client: this connection's number at the server.
        process: the server's id; None on another machine.
        latency_ns: of a round trip without arrays, median of those measured when connecting.
    """

    endpoint: str
    transport: str
    payload: str
    device: str
    dtype: str
    description: str
    methods: tuple[str, ...]
    max_message_bytes: int
    slots: int
    epoch: int
    client: int
    process: int | None
    latency_ns: int


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise RpcError(f"{name} is {value}; write more than 0")
