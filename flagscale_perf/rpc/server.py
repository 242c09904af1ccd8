"""The serving side: one thread, which serves every client in turn."""

from __future__ import annotations

import os
import re
import secrets
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FrameType

from flagscale_perf.rpc import header
from flagscale_perf.rpc.connection import Caller, Connection, Handler, Request, failure
from flagscale_perf.rpc.endpoint import clock_domain, server_endpoint
from flagscale_perf.rpc.errors import InvalidMessage, PeerGone, Refused, RpcError
from flagscale_perf.rpc.header import Kind, Prefix
from flagscale_perf.rpc.link_zeromq import Message, ServerLink
from flagscale_perf.rpc.options import ServerOptions
from flagscale_perf.rpc.packing import Sizes, Unpacker
from flagscale_perf.rpc.records import ServedRecord

__all__ = ["Handler", "Request", "Server"]
METHOD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,23}")


class Server:
    """Serves methods at an endpoint.

    Attributes:
        endpoint: the actual one.
    """

    def __init__(
        self,
        methods: Mapping[str, Handler],
        options: ServerOptions,
        observe: Callable[[ServedRecord], None] | None = None,
    ) -> None:
        """Binds; `serve` answers. `observe` gets the record of each call, on the serving thread."""
        wrong = [name for name in methods if not METHOD.fullmatch(name)]
        if wrong:
            raise RpcError(f"method {wrong[0]!r}: a name has letters, digits and underscores, at most 24")
        self._options = options
        self._epoch = secrets.randbits(62) | 1
        self._caller = Caller(methods, self._epoch, Unpacker(options.max_message_bytes), observe)
        self._connections: dict[bytes, Connection] = {}
        self._count = 0
        self._stopping = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._link = ServerLink(server_endpoint(options), options.max_message_bytes)
        self.endpoint = self._link.endpoint

    def serve(self) -> None:
        """Until `stop`, SIGINT or SIGTERM; closes everything at its end."""
        try:
            with self._signals(), select.epoll() as poll:
                poll.register(self._wake, select.EPOLLIN)
                poll.register(self._link.descriptor, select.EPOLLIN)
                while not self._stopping:
                    while not self._stopping and (received := self._link.receive()) is not None:
                        self._answer(*received)
                    if not self._stopping:
                        poll.poll()
        finally:
            self.close()

    def stop(self) -> None:
        """Ends `serve` after the call that is being served. From any thread, or a handler of signals."""
        self._stopping = True
        os.eventfd_write(self._wake, 1)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            self.stop()

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _answer(self, who: bytes, message: Message) -> None:
        begun = time.monotonic_ns()
        call = 0
        try:
            prefix = header.read_prefix(message.first)
            call = prefix.call
            connection = self._connections.get(who)
            if prefix.kind == Kind.HELLO:
                self._greet(who, prefix, message)
                return
            if connection is None or prefix.epoch != self._epoch:
                raise PeerGone("this server was started after the client met it: connect again")
            if prefix.kind == Kind.CALL:
                if not self._caller.call(connection, prefix, message, begun):
                    self._forget(who)
            elif prefix.kind == Kind.PING:
                connection.send(header.message(prefix, header.encode(((), {}))), [])
            elif prefix.kind == Kind.BYE:
                self._forget(who)
            else:
                raise InvalidMessage(f"a message of kind {prefix.kind} at this point")
        except RpcError as error:
            answer = Prefix(Kind.FAILURE, 0, self._epoch, call, error.status, 0, 0, 0)
            self._link.send(who, failure(answer, error), [])

    def _greet(self, who: bytes, prefix: Prefix, message: Message) -> None:
        wanted = header.HELLO.decode(message.first, prefix)
        options = self._options
        if wanted.protocol != header.PROTOCOL or wanted.byte_order != header.BYTE_ORDER:
            raise Refused(
                f"protocol {wanted.protocol}, {wanted.byte_order} endian; this server speaks "
                f"{header.PROTOCOL}, {header.BYTE_ORDER} endian: use the same version on both sides"
            )
        if wanted.model is not None and wanted.model != options.model:
            raise Refused(f"the client expects the model {wanted.model!r}; this server has {options.model!r}")
        if who not in self._connections and len(self._connections) >= options.max_clients:
            raise Refused(f"{options.max_clients} clients are connected already; raise max_clients")
        self._count += 1
        same_clock = wanted.clock == clock_domain()
        sizes = Sizes(4096, 2**62, True, min(wanted.max_message_bytes, options.max_message_bytes))
        connection = Connection(self._count, partial(self._link.send, who), sizes, same_clock)
        self._connections[who] = connection
        body = header.WelcomeBody(
            header.PROTOCOL, header.BYTE_ORDER, connection.number, os.getpid(), options.device, options.dtype,
            options.model, options.description, tuple(self._caller.methods), options.max_message_bytes, 0,
            options.slots, b"", "", same_clock,
        )  # fmt: skip
        answer = Prefix(Kind.WELCOME, 0, self._epoch, 0, 0, 0, 0, 0)
        connection.send(header.message(answer, header.encode(body)), [])

    def _forget(self, who: bytes) -> None:
        self._connections.pop(who, None)

    def close(self) -> None:
        """For a server that is not to serve; `serve` does it at its end."""
        if self._wake < 0:
            return
        self._link.close()
        os.close(self._wake)
        self._wake = -1
