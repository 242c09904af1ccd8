"""The server's side of the handshake: what is agreed with a client, and the shared memory it gets."""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Iterator

from flagscale_perf.rpc.errors import Refused
from flagscale_perf.rpc.options import ServerOptions
from flagscale_perf.rpc.transport import header
from flagscale_perf.rpc.transport.arena import arena_bytes, make_arena
from flagscale_perf.rpc.transport.connection import Connection
from flagscale_perf.rpc.transport.handshake import Shared, seal_slots
from flagscale_perf.rpc.transport.header import Kind, Prefix
from flagscale_perf.rpc.transport.link_unix import UnixLink
from flagscale_perf.rpc.transport.link_zeromq import Message, ServerLink
from flagscale_perf.rpc.transport.packing import Packer, Sizes
from flagscale_perf.spine.clock import boot_id

TOKEN_BYTES = 16
KEY_BYTES = 32
PROBE = 1  # code of a PING that only checks whether the client is still alive
INLINE_AT_FIRST = 4096


class Reception:
    """Keeps the connected clients.

    Attributes:
        epoch: of this server.
    """

    def __init__(
        self, options: ServerOptions, methods: tuple[str, ...], link: ServerLink, side_path: str
    ) -> None:
        self.epoch = secrets.randbits(62) | 1
        self._options = options
        self._methods = methods
        self._link = link
        self._side_path = side_path
        self._arena_bytes = arena_bytes(options.arena_bytes, options.slots) if side_path else 0
        self._connections: dict[bytes, Connection] = {}
        self._count = 0

    def find(self, who: bytes) -> Connection | None:
        """The connection with this ZeroMQ identity."""
        return self._connections.get(who)

    def greet(self, who: bytes, prefix: Prefix, message: Message) -> None:
        """Answers a HELLO. Raises `Refused`, `InvalidMessage`."""
        wanted = header.HELLO.decode(message.first, prefix)
        options = self._options
        if wanted.protocol != header.PROTOCOL or wanted.byte_order != header.BYTE_ORDER:
            raise Refused(
                f"protocol {wanted.protocol}, {wanted.byte_order} endian; this server speaks "
                f"{header.PROTOCOL}, {header.BYTE_ORDER} endian: use the same version on both sides"
            )
        if wanted.model is not None and wanted.model != options.model:
            raise Refused(f"the client expects the model {wanted.model!r}; this server has {options.model!r}")
        self.forget(who)
        self._make_room()
        self._count += 1
        most = min(wanted.max_message_bytes, options.max_message_bytes)
        frames = not wanted.unix and not wanted.seal
        sizes = Sizes(INLINE_AT_FIRST, 0, frames, most)
        connection = Connection(
            self._count, who, secrets.token_bytes(TOKEN_BYTES), wanted.shared, wanted.unix, wanted.seal,
            Packer(sizes), options.slots, wanted.clock == boot_id(),
        )  # fmt: skip
        self._connections[who] = connection
        body = header.WelcomeBody(
            header.PROTOCOL, header.BYTE_ORDER, connection.number, os.getpid(), options.device, options.dtype,
            options.model, options.description, self._methods, options.max_message_bytes, self._arena_bytes,
            options.slots, connection.token, self._side_path, connection.same_clock,
        )  # fmt: skip
        self._link.send(who, self._message(Kind.WELCOME, header.encode(body)), [], wait=False)

    def _make_room(self) -> None:
        if len(self._connections) < self._options.max_clients:
            return
        probe = header.message(Prefix(Kind.PING, 0, self.epoch, 0, PROBE, 0, 0, 0), header.EMPTY_BODY)
        for who in [who for who, each in self._connections.items() if each.side is None]:
            if not self._link.send(who, probe, []):
                self.forget(who)
        if len(self._connections) >= self._options.max_clients:
            raise Refused(f"{self._options.max_clients} clients are connected already; raise max_clients")

    def attach(self, side: UnixLink, message: Message) -> Connection:
        """Answers an ATTACH: from then on the socket belongs to a connection. Raises `Refused`,
        `InvalidMessage`.
        """
        prefix = header.read_prefix(message.first)
        if prefix.kind != Kind.ATTACH or prefix.epoch != self.epoch:
            raise Refused("a unix socket that does not begin with the ATTACH of a client of this server")
        body = header.ATTACH.decode(message.first, prefix)
        for connection in self._connections.values():
            if connection.number == body.client and hmac.compare_digest(connection.token, body.token):
                break
        else:
            raise Refused("no client with this number and token has said HELLO")
        if connection.side is not None:
            raise Refused(f"client {connection.number} has its unix socket already")
        try:
            self._hand_over(connection, side)
        except BaseException:  # who asks and leaves must not make the memory pile up
            connection.shared.close()
            connection.shared = Shared()
            raise
        connection.side = side
        return connection

    def _hand_over(self, connection: Connection, side: UnixLink) -> None:
        key = self._share(connection)
        shared = connection.shared
        size = self._arena_bytes if shared.arenas else 0
        answer = self._message(Kind.ATTACHED, header.encode(header.AttachedBody(size, key)))
        side.send_descriptors(answer, [arena.descriptor for arena in shared.arenas])
        for arena in shared.arenas:
            arena.close_descriptor()

    def _share(self, connection: Connection) -> bytes:
        """Allocates its shared memory and returns the key if it is to be sealed."""
        if not connection.wants_shared or not self._arena_bytes:
            return b""
        shared = connection.shared
        for peer_writes in (True, False):
            shared.arenas.append(make_arena(self._arena_bytes, connection.slots, peer_writes))
        shared.requests = list(shared.arenas[0].slots)
        shared.replies = list(shared.arenas[1].slots)
        if not connection.sealed:
            return b""
        key = secrets.token_bytes(KEY_BYTES)
        seal_slots(shared, key)
        return key

    def settle(self, connection: Connection, prefix: Prefix, message: Message) -> bytes:
        """Answers a SETTLE: replies use the sizes that the client measured."""
        body = header.SETTLE.decode(message.first, prefix)
        inline = -1 if connection.sealed else body.inline_bytes
        sizes = connection.packer.sizes
        connection.packer = Packer(
            sizes._replace(inline_bytes=inline, arena_from_bytes=body.arena_from_bytes)
        )
        return self._message(Kind.SETTLE, b"")

    def forget(self, who: bytes) -> None:
        """Frees everything of a client that has gone."""
        connection = self._connections.pop(who, None)
        if connection is not None:
            connection.close()

    def all(self) -> Iterator[Connection]:
        """Every connected client."""
        return iter(list(self._connections.values()))

    def _message(self, kind: Kind, body: bytes) -> bytes:
        return header.message(Prefix(kind, 0, self.epoch, 0, 0, 0, 0, 0), body)
