"""The options of a client and a server, and what they tell each other in the handshake."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from flagscale_perf.rpc.errors import RpcError

Payload = Literal["auto", "msgpack", "frames", "shared"]
Control = Literal["auto", "zeromq", "unix"]
Item = int | float | str | bool
Value = Item | Sequence[Item]  # of an argument, as it is given
Arguments = Mapping[str, Value]
Received = Item | list[Item]  # as it comes out at the other end
MIB = 2**20


@dataclass(frozen=True)
class ClientOptions:
    """How to reach a server.

    Attributes:
        endpoint: as `ipc:///run/user/1000/x.ipc`, `tcp://127.0.0.1:5555` or `inproc://name`; None for the
            private one that a server without an endpoint has.
        payload: how large arrays go. "shared": in the server's shared memory; "frames": as frames of ZeroMQ,
            without a copy; "auto": shared where the server is on this machine.
        control: what carries the headers. "zeromq"; or "unix", a unix socket, which is several times faster;
            "auto" is "zeromq".
        timeout_s: of a call, unless it says otherwise.
        connect_timeout_s: how long to wait for a server that is not there yet.
        max_message_bytes: of arrays, in a reply; more is refused by the server before it is sent.
        seal: encrypt arrays in shared memory with AES-GCM.
        model: what the server must serve, as `ServerOptions.model` says it there; None for anything.
        inline_bytes: arrays up to this size go in the header's message; None: measured when connecting.
        arena_from_bytes: arrays from this size on go through shared memory; None: measured when connecting.
        allow_remote: connect to another machine over tcp, where nothing is encrypted.
    """

    endpoint: str | None = None
    payload: Payload = "auto"
    control: Control = "auto"
    timeout_s: float = 60.0
    connect_timeout_s: float = 30.0
    max_message_bytes: int = 1024 * MIB
    seal: bool = False
    model: str | None = None
    inline_bytes: int | None = None
    arena_from_bytes: int | None = None
    allow_remote: bool = False

    def __post_init__(self) -> None:
        _one_of("payload", self.payload, get_args(Payload))
        _one_of("control", self.control, get_args(Control))
        _positive("timeout_s", self.timeout_s)
        _positive("connect_timeout_s", self.connect_timeout_s)
        _positive("max_message_bytes", self.max_message_bytes)


@dataclass(frozen=True)
class ServerOptions:
    """How to serve.

    Attributes:
        endpoint: see `ClientOptions.endpoint`.
        max_message_bytes: of arrays, in one call or one reply. Known from the model's configuration.
        arena_bytes: of shared memory for the calls of one client, and as much for the replies; 0 for none. It
            is shared out evenly to `slots`: a call whose arrays do not fit its share goes as frames.
        slots: calls of one client that may be under way.
        max_clients: more are refused.
        device, dtype: what the methods compute on and in, as told to clients.
        model: identifies what is served; a client that expects something else is refused.
        description: of the model, as JSON; told to clients.
        allow_remote: bind tcp to more than this machine; nothing is encrypted there.
    """

    endpoint: str | None = None
    max_message_bytes: int = 256 * MIB
    arena_bytes: int = 64 * MIB
    slots: int = 2
    max_clients: int = 8
    device: str = "cpu"
    dtype: str = ""
    model: str = ""
    description: str = "{}"
    allow_remote: bool = False

    def __post_init__(self) -> None:
        _positive("max_message_bytes", self.max_message_bytes)
        _positive("max_clients", self.max_clients)
        if not 1 <= self.slots <= MOST_SLOTS:
            raise RpcError(f"slots is {self.slots}; write 1 to {MOST_SLOTS}")
        if self.arena_bytes < 0:
            raise RpcError(f"arena_bytes is {self.arena_bytes}; write 0 for none, or a number of bytes")
        if len(self.description.encode()) > MOST_DESCRIPTION_BYTES:
            size = len(self.description.encode())
            raise RpcError(f"description has {size} bytes; at most {MOST_DESCRIPTION_BYTES} fit")


METHOD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,23}")
MOST_SLOTS = 8
MOST_DESCRIPTION_BYTES = 32768


class Hello(NamedTuple):
    """What a client knows of its server after the handshake.

    Attributes:
        endpoint: the actual one.
        transport: "IPC", "TCP" or "INPROC".
        payload: "shared", "frames" or "msgpack": how large arrays go.
        control: "zeromq" or "unix".
        device, dtype, model, description: as the server's options say.
        methods: names, each at the place of its number.
        max_message_bytes: of arrays in a call.
        arena_bytes: of shared memory in each direction; 0 without.
        slots: calls that may be under way.
        epoch: of the server; another one after it was started again.
        client: this connection's number at the server.
        process: the server's id; None on another machine.
        latency_ns: of a round trip without arrays, median of those measured when connecting.
        inline_bytes, arena_from_bytes: where arrays go by size.
        setup_ns: what connecting took, shared memory and measurements included.
    """

    endpoint: str
    transport: str
    payload: str
    control: str
    device: str
    dtype: str
    model: str
    description: str
    methods: tuple[str, ...]
    max_message_bytes: int
    arena_bytes: int
    slots: int
    epoch: int
    client: int
    process: int | None
    latency_ns: int
    inline_bytes: int
    arena_from_bytes: int
    setup_ns: int


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise RpcError(f"{name} is {value!r}; write one of {', '.join(allowed)}")


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise RpcError(f"{name} is {value}; write more than 0")
