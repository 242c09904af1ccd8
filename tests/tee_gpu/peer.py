"""A hostile peer: it speaks the protocol's messages, and says what it likes in them."""

from __future__ import annotations

import os
import time
from typing import Any

import zmq
from tensor_rpc import wire
from tensor_rpc.endpoint import machine

PATIENCE_S = 60


class Peer:
    """A DEALER."""

    def __init__(self, endpoint: str) -> None:
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.rcvtimeo = PATIENCE_S * 1000
        self.socket.connect(endpoint)
        self.calls = 0

    def hello(self, **changed: Any) -> wire.Welcome:
        """Meets the server; `changed` are fields of the greeting."""
        said: dict[str, Any] = {
            "protocol": wire.PROTOCOL,
            "payload": "frames",
            "max_message_bytes": 2**30,
            "machine": machine(),
            "process": os.getpid(),
        }
        answer = self.ask([wire.encode(wire.Greeting(**(said | changed)))])
        assert isinstance(answer, wire.Welcome), answer
        return answer

    def call(self, parts: Any = (), *frames: bytes, **changed: Any) -> wire.Reply | wire.Failure:
        """Calls method 0 with these parts; `changed` are fields of the call."""
        self.calls += 1
        said: dict[str, Any] = {
            "number": self.calls,
            "method": 0,
            "slot": 0,
            "ready_ns": 0,
            "parts": parts,
            "arguments": {},
        }
        answer = self.ask([wire.encode(("Call", *(said | changed).values())), *frames])
        assert isinstance(answer, wire.Reply | wire.Failure)
        return answer

    def ask(self, message: list[bytes]) -> wire.ToClient:
        """Sends any bytes, and takes the answer."""
        self.socket.send_multipart(message)
        return wire.for_client(self.socket.recv_multipart()[0])

    def close(self) -> None:
        self.socket.close(0)
        self._context.term()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def wait_until(condition: Any) -> None:
    """Fails when it does not come to be."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)
