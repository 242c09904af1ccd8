"""A client's socket: messages in and out by a deadline, and the end of the server noticed."""

from __future__ import annotations

import time
from collections.abc import Sequence

import zmq

from tensor_rpc import wire
from tensor_rpc.errors import CallTimeout, PeerGone

QUEUE = 8  # messages; slots keep it shorter
GONE = "the server ended, or the connection to it broke"
now = time.monotonic_ns


class Link:
    """One DEALER socket.

    Attributes:
        copies: frames are copied on their way, as the baseline's are.
    """

    def __init__(self, max_message_bytes: int) -> None:
        self.copies = False
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.set_hwm(QUEUE)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 10)
        self._socket.setsockopt(zmq.MAXMSGSIZE, max_message_bytes + wire.MOST_HEADER_BYTES)
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)

    def connect(self, endpoint: str) -> None:
        """Begins to connect, in the background."""
        self._socket.connect(endpoint)

    def settle(self, copies: bool) -> None:
        """The server has answered: from now on a lost connection is its end."""
        self.copies = copies
        self._poller.register(self._monitor, zmq.POLLIN)

    def send(self, first: bytes, frames: Sequence[wire.Frame], deadline_ns: int) -> None:
        """Hands the message to ZeroMQ, which sends it in the background. Raises `CallTimeout` or
        `PeerGone`.
        """
        self._socket.sndtimeo = max(0, (deadline_ns - now()) // 1_000_000)
        try:
            self._socket.send(first, zmq.SNDMORE if frames else 0)
            for place, frame in enumerate(frames, 1):
                self._socket.send(frame, zmq.SNDMORE if place < len(frames) else 0, copy=self.copies)
        except zmq.Again:
            if self._monitor.poll(0):
                raise PeerGone(GONE) from None
            raise CallTimeout("the server takes no more messages") from None

    def receive(self, deadline_ns: int) -> tuple[wire.ToClient, list[memoryview], int, int]:
        """The next message, its further frames, when it was there, and its bytes. Raises `CallTimeout`,
        `PeerGone` or `InvalidMessage`.
        """
        if not self._socket.poll(0):
            ready = dict(self._poller.poll(max(0, (deadline_ns - now()) // 1_000_000)))
            if self._socket not in ready:  # what came before the end counts
                raise PeerGone(GONE) if ready else CallTimeout("no reply in time")
        there_ns = now()
        if self.copies:
            first, *rest = self._socket.recv_multipart()
            frames = [memoryview(frame) for frame in rest]
        else:
            head, *behind = self._socket.recv_multipart(copy=False)
            first, frames = head.bytes, [frame.buffer for frame in behind]
        return wire.for_client(first), frames, there_ns, len(first) + sum(map(len, frames))

    def close(self) -> None:
        """Drops unsent messages; twice does no harm."""
        if not self._socket.closed:
            self._socket.disable_monitor()
            self._monitor.close(0)
            self._socket.close(0)
            self._context.term()
