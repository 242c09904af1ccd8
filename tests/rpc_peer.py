"""A hostile peer: it speaks the protocol's frames, and says what it likes in them."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import zmq

from flagscale_perf.rpc.transport import header
from flagscale_perf.rpc.transport.header import Kind, Prefix
from flagscale_perf.spine.clock import boot_id

PATIENCE_S = 60


class Peer:
    """A DEALER, and the unix socket once it is attached."""

    def __init__(self, endpoint: str) -> None:
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.rcvtimeo = PATIENCE_S * 1000
        self.socket.connect(endpoint)
        self.epoch = 0
        self.calls = 0
        self.side: socket.socket | None = None
        self.descriptors: list[int] = []

    def hello(self, **changed: Any) -> header.WelcomeBody:
        """Meets the server; `changed` are fields of HELLO."""
        said: dict[str, Any] = {
            "protocol": header.PROTOCOL, "byte_order": header.BYTE_ORDER, "max_message_bytes": 2**30,
            "shared": True, "unix": False, "seal": False, "model": None, "clock": boot_id(),
        }  # fmt: skip
        body = header.encode(header.HelloBody(**(said | changed)))
        self.send(Prefix(Kind.HELLO, 0, 0, 0, 0, 0, 0, 0), body)
        prefix, first, _ = self.receive()
        assert prefix.kind == Kind.WELCOME, failure_of(prefix, first)
        self.epoch = prefix.epoch
        return header.WELCOME.decode(first, prefix)

    def attach(self, welcome: header.WelcomeBody) -> header.AttachedBody:
        """Gets the descriptors of the shared memory."""
        first, self.descriptors = self.attach_with(welcome.socket, welcome.client, welcome.token)
        prefix = header.read_prefix(first)
        assert prefix.kind == Kind.ATTACHED, failure_of(prefix, first)
        return header.ATTACHED.decode(first, prefix)

    def attach_with(self, path: str, client: int, token: bytes) -> tuple[bytes, list[int]]:
        """What the server says to this."""
        self.side = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.side.settimeout(PATIENCE_S)
        self.side.connect(path)
        body = header.encode(header.AttachBody(client, token))
        self.side.send(header.message(Prefix(Kind.ATTACH, 0, self.epoch, 0, 0, 0, 0, 0), body))
        first, descriptors, _, _ = socket.recv_fds(self.side, 65536, 4)
        return first, descriptors

    def send(self, prefix: Prefix, body: bytes, frames: tuple[bytes, ...] = (), tail: bytes = b"") -> None:
        """A message over ZeroMQ."""
        self.socket.send_multipart([header.message(prefix, body) + tail, *frames])

    def call(
        self,
        parts: Any,
        arguments: Any = None,
        *,
        frames: tuple[bytes, ...] = (),
        tail: bytes = b"",
        **changed: Any,
    ) -> tuple[Prefix, str]:
        """Calls method 0 with these parts of the header; what comes back."""
        self.calls += 1
        prefix = Prefix(Kind.CALL, 0, self.epoch, self.calls, 0, 0, 0, 0)._replace(**changed)
        body = header.encode((parts, {} if arguments is None else arguments))
        size = header.PREFIX.size + len(body)
        self.send(prefix, body, frames, bytes(header.padding(size)) + tail if tail else b"")
        answer, first, _ = self.receive()
        return answer, failure_of(answer, first)

    def receive(self) -> tuple[Prefix, bytes, list[bytes]]:
        """The next message."""
        first, *frames = self.socket.recv_multipart()
        return header.read_prefix(first), first, frames

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        if self.side is not None:
            self.side.close()
        self.socket.close(0)
        self._context.term()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def failure_of(prefix: Prefix, first: bytes) -> str:
    """The text of a FAILURE; "" for anything else."""
    return header.FAILURE.decode(first, prefix).text if prefix.kind == Kind.FAILURE else ""


def wait_until(condition: Any) -> None:
    """Fails when it does not come to be."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)
