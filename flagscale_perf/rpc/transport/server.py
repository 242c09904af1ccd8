"""The serving side: one thread, which serves every client in turn."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial

from flagscale_perf.rpc.errors import InvalidMessage, PeerGone, Refused, RpcError
from flagscale_perf.rpc.options import METHOD, ServerOptions
from flagscale_perf.rpc.records import ServedRecord
from flagscale_perf.rpc.transport import header
from flagscale_perf.rpc.transport.arena import KEEP_FREE_BYTES, free_bytes
from flagscale_perf.rpc.transport.connection import Caller, Connection, Handler, Request, Send, failure_body
from flagscale_perf.rpc.transport.endpoint import Claim, path_of, server_endpoint, side_socket
from flagscale_perf.rpc.transport.header import Kind, Prefix
from flagscale_perf.rpc.transport.link_unix import UnixLink, check_peer, listen
from flagscale_perf.rpc.transport.link_zeromq import Message, ServerLink
from flagscale_perf.rpc.transport.packing import Unpacker
from flagscale_perf.rpc.transport.reception import Reception
from flagscale_perf.rpc.transport.spin import Spin
from flagscale_perf.rpc.transport.wake import Wake

__all__ = ["Handler", "Request", "Server"]
HELLO, CALL = int(Kind.HELLO), int(Kind.CALL)
_read_prefix = header.read_prefix


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
        """Binds the endpoint; `serve` answers calls. `observe` gets the record of each call, on the serving
        thread.
        """
        _check(methods, options)
        self._options = options
        self._stopping = False
        self._listener: socket.socket | None = None
        self._strangers: dict[int, UnixLink] = {}  # connected, and not yet attached
        self._attached: dict[int, tuple[Connection, UnixLink, Send]] = {}
        self._by_unix = False
        endpoint = server_endpoint(options)
        self._claim = Claim(endpoint) if path_of(endpoint) is not None else None
        try:
            self._link = ServerLink(endpoint, options.max_message_bytes)
            side_path = side_socket(endpoint) if self._claim is not None else ""
            if side_path:
                self._listener = listen(side_path, options.max_clients)
        except BaseException:
            if self._claim is not None:
                self._claim.release()
            raise
        self.endpoint = self._link.endpoint
        self._reception = Reception(options, tuple(methods), self._link, side_path)
        unpacker = Unpacker(options.max_message_bytes)
        self._caller = Caller(methods, self._reception.epoch, unpacker, observe)
        self._poll = select.epoll()
        self._spin = Spin(self._poll.poll)
        self._wake = Wake()
        self._poll.register(self._wake.descriptor, select.EPOLLIN)
        if self._listener is not None:
            self._poll.register(self._listener, select.EPOLLIN)

    def serve(self) -> None:
        """Runs until `stop`, SIGINT or SIGTERM, then closes everything."""
        try:
            with self._wake.rung_by_signals(self.stop):
                while not self._stopping:
                    if self._by_unix:
                        begun = self._spin.wait()
                        self._serve_ready(-1, begun)
                    elif self._link.wait(self._poll.fileno()):
                        self._serve_ready(0)
                    else:
                        self._serve_one()
        finally:
            self.close()

    def _serve_ready(self, timeout_s: float, begun: int = 0) -> None:
        ready = self._poll.poll(timeout_s)
        if begun:
            self._spin.ended(time.monotonic_ns() - begun)
        for descriptor, _ in ready:
            found = self._attached.get(descriptor)
            if found is not None:
                self._serve_unix(*found)
            elif descriptor == self._link.descriptor:
                self._serve_zeromq()
            elif descriptor == self._wake.descriptor:
                self._wake.drain()
            else:
                self._serve_stranger(descriptor)

    def _wait_by(self, unix: bool) -> None:
        """All ways of waiting notice every event, but each is quickest for one kind: this uses the one for
        the last event.
        """
        if unix == self._by_unix:
            return
        self._by_unix = unix
        if unix:
            self._poll.register(self._link.descriptor, select.EPOLLIN)
            self._serve_zeromq()  # its descriptor signals only once, and may have done so just now
        else:
            self._poll.unregister(self._link.descriptor)

    def stop(self) -> None:
        """Ends `serve` after the current call; may be called from any thread or signal handler."""
        self._stopping = True
        self._wake.ring()

    # --- who speaks

    def _serve_zeromq(self) -> None:
        # ZeroMQ's descriptor signals only once: all waiting messages must be taken.
        while not self._stopping and self._link.has_news():
            self._serve_one()

    def _serve_one(self) -> None:
        who, message = self._link.receive()
        connection = self._reception.find(who)
        send = partial(self._link.send, who, wait=connection is not None)
        if not self._answer(connection, send, message, who):
            self._forget(who)
        if connection is not None and self._by_unix:
            self._wait_by(unix=False)

    def _serve_unix(self, connection: Connection, side: UnixLink, send: Send) -> None:
        message = side.receive_now()
        if message is not None and not message.first:
            return
        if message is None or not self._answer(connection, send, message, None):
            self._forget(connection.who)
        elif not self._by_unix:
            self._wait_by(unix=True)

    def _serve_stranger(self, descriptor: int) -> None:
        if self._listener is not None and descriptor == self._listener.fileno():
            self._accept(self._listener)
            return
        side = self._strangers.pop(descriptor, None)
        if side is None:  # one that was just forgotten
            return
        message = side.receive_now()
        if message is not None and not message.first:  # a number that was used again: no news of this one
            self._strangers[descriptor] = side
            return
        try:
            if message is None:
                raise PeerGone("it left")
            connection = self._reception.attach(side, message)
        except (RpcError, OSError) as error:
            self._poll.unregister(descriptor)
            _send(side, self._failure(0, error), [])
            side.close()
            return
        self._attached[descriptor] = connection, side, partial(_send, side)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connected, _ = listener.accept()
        except OSError:
            return
        try:
            check_peer(connected)
        except Refused:
            connected.close()
            return
        if len(self._strangers) >= self._options.max_clients:  # the one that has been silent for longest
            descriptor = next(iter(self._strangers))
            self._poll.unregister(descriptor)
            self._strangers.pop(descriptor).close()
        self._strangers[connected.fileno()] = UnixLink(connected)
        self._poll.register(connected, select.EPOLLIN)

    # --- what is said

    def _answer(self, connection: Connection | None, send: Send, message: Message, who: bytes | None) -> bool:
        """False if the client has gone and is to be forgotten."""
        begun = time.monotonic_ns()
        call = 0
        try:
            prefix = _read_prefix(message[0])
            kind, _, epoch, call, *_ = prefix
            if kind == HELLO and who is not None:
                self._forget(who)
                self._reception.greet(who, prefix, message)
                return True
            if connection is None or epoch != self._reception.epoch:
                raise PeerGone("this server was started after the client met it: connect again")
            if kind == CALL:
                return self._caller.call(connection, send, prefix, message, begun)
            if kind == Kind.BYE:
                return False
            return send(self._other(connection, prefix, message), [])
        except RpcError as error:
            return send(self._failure(call, error), []) or connection is None

    def _other(self, connection: Connection, prefix: Prefix, message: Message) -> bytes:
        if prefix.kind == Kind.PING:
            return self._caller.ping(connection, prefix, message)
        if prefix.kind == Kind.SETTLE:
            return self._reception.settle(connection, prefix, message)
        raise InvalidMessage(f"a message of kind {prefix.kind} at this point")

    def _failure(self, call: int, error: Exception) -> bytes:
        status = error.status if isinstance(error, RpcError) else 0
        answer = Prefix(Kind.FAILURE, 0, self._reception.epoch, call, status, 0, 0, 0)
        return header.message(answer, failure_body(error))

    def _forget(self, who: bytes) -> None:
        connection = self._reception.find(who)
        if connection is not None and connection.side is not None:
            descriptor = connection.side.socket.fileno()
            self._poll.unregister(descriptor)
            self._attached.pop(descriptor, None)
        self._reception.forget(who)

    def close(self) -> None:
        """For a server that will not serve; `serve` calls it at its end."""
        if self._wake.descriptor < 0:
            return
        for connection in self._reception.all():
            self._forget(connection.who)
        for side in self._strangers.values():
            side.close()
        self._poll.close()
        if self._listener is not None:
            self._listener.close()
        self._link.close()
        if self._claim is not None:
            self._claim.release()
        self._wake.close()


def _send(side: UnixLink, first: bytes, frames: list[memoryview]) -> bool:
    try:
        side.send(first, frames, 0)
    except (RpcError, OSError):
        return False
    return True


def _check(methods: Mapping[str, Handler], options: ServerOptions) -> None:
    for name in methods:
        if not METHOD.fullmatch(name):
            raise RpcError(f"method {name!r}: a name has letters, digits and underscores, at most 24")
    needed, free = 2 * options.arena_bytes + KEEP_FREE_BYTES, free_bytes()
    if needed > free:
        raise Refused(
            f"arena_bytes={options.arena_bytes} needs {needed} bytes for the first client, and {free} are "
            "free: "
            "lower it"
        )
