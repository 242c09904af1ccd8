"""Messages over ZeroMQ: DEALER at the client, ROUTER at the server.

It restricts what libzmq leaves open: messages are limited in size, queues are short, nothing lingers at the
end, an unroutable reply is an error, and the end of the other process is noticed.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

import zmq
from zmq.backend import Socket as _Plain
from zmq.backend import zmq_poll
from zmq.utils.monitor import parse_monitor_message

from flagscale_perf.rpc.errors import CallTimeout, PeerGone, Refused
from flagscale_perf.rpc.transport.header import MOST_FIRST_BYTES, MOST_PARTS

QUEUE = 8  # messages; credits keep it shorter
SEND_DEADLINE_MS = 250  # of a reply to a client that takes nothing
GONE = "the server ended, or the connection to it broke"
LOOK_EVERY_MS = 10  # interval of checks whether the peer has ended
COPY_BELOW = 65536  # a copy of a small frame costs less than the bookkeeping of sharing it


POLLIN, SNDMORE, NOBLOCK = int(zmq.POLLIN), int(zmq.SNDMORE), int(zmq.NOBLOCK)
# The methods of zmq.Socket's base class. A frame knows whether more follow; asking the socket is slower.
_send, _receive = _Plain.send, _Plain.recv
_new = tuple.__new__  # half the time of a NamedTuple's own constructor


class Message(NamedTuple):
    """A received message: its first frame, the further ones, and its arrival time."""

    first: bytes | memoryview
    frames: list[memoryview]
    there_ns: int = 0


def context_for(endpoint: str) -> tuple[zmq.Context[zmq.Socket[bytes]], bool]:
    """The context, and whether it belongs to the caller: inproc only works within one context."""
    if endpoint.startswith("inproc:"):
        return zmq.Context.instance(), False
    return zmq.Context(), True


class ClientLink:
    """One DEALER socket; not thread-safe."""

    carries_frames = True
    name = "zeromq"

    def __init__(self, endpoint: str, max_message_bytes: int) -> None:
        self._context, self._own_context = context_for(endpoint)
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.set_hwm(QUEUE)
        self._socket.setsockopt(zmq.MAXMSGSIZE, max(max_message_bytes, MOST_FIRST_BYTES))
        self._socket.setsockopt(zmq.RECONNECT_IVL, 10)
        self._socket.setsockopt(zmq.RCVTIMEO, LOOK_EVERY_MS)
        self._socket.setsockopt(zmq.SNDTIMEO, LOOK_EVERY_MS)
        self._monitor: zmq.Socket[bytes] | None = None
        if not endpoint.startswith("inproc:"):
            self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._socket.connect(endpoint)
        self.greeted = False  # until then a lost connection only means that the server is not there yet

    def send(self, first: bytes, frames: list[memoryview], deadline_ns: int) -> None:
        """Hands the message to ZeroMQ, which sends it in the background. Raises `CallTimeout` or
        `PeerGone`.
        """
        more = zmq.SNDMORE if frames else 0
        while True:
            try:
                _send(self._socket, first, more)
                break
            except zmq.Again:
                if self.greeted and self._is_gone():
                    raise PeerGone(GONE) from None
                if time.monotonic_ns() >= deadline_ns:
                    raise CallTimeout("the server takes no more messages") from None
        if frames:
            send_frames(self._socket, frames)

    def receive(self, deadline_ns: int) -> Message:
        """Waits for a message. Raises `CallTimeout` or `PeerGone`."""
        first = self._first(deadline_ns)
        there = time.monotonic_ns()
        return _new(Message, (first.bytes, receive_frames(self._socket) if first.more else [], there))

    def _first(self, deadline_ns: int) -> zmq.Frame:
        socket = self._socket
        while True:
            try:
                return _receive(socket, 0, False)
            except zmq.Again:
                pass
            if self.greeted and self._is_gone():
                try:  # what came before the end counts
                    return _receive(socket, zmq.NOBLOCK, False)
                except zmq.Again:
                    raise PeerGone(GONE) from None
            if time.monotonic_ns() >= deadline_ns:
                raise CallTimeout("no reply in time")

    def _is_gone(self) -> bool:
        if self._monitor is None:
            return False
        try:
            event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
        except zmq.Again:
            return False
        return bool(event["event"] == zmq.EVENT_DISCONNECTED)

    def close(self) -> None:
        """Drops unsent messages."""
        if self._monitor is not None:
            self._socket.disable_monitor()
            self._monitor.close(0)
        self._socket.close(0)
        if self._own_context:
            self._context.term()


class ServerLink:
    """One ROUTER socket, and what a poll needs of it."""

    def __init__(self, endpoint: str, max_message_bytes: int) -> None:
        self._context, self._own_context = context_for(endpoint)
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.set_hwm(QUEUE)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.MAXMSGSIZE, max(max_message_bytes, MOST_FIRST_BYTES))
        # Not 0: without waiting, libzmq considers a queue full that has just been emptied.
        self._socket.setsockopt(zmq.SNDTIMEO, SEND_DEADLINE_MS)
        if endpoint.startswith("ipc:"):
            self._socket.setsockopt(zmq.IPC_FILTER_UID, os.getuid())
        before = os.umask(0o077)
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise Refused(f"cannot listen at {endpoint}: {error.strerror}") from None
        finally:
            os.umask(before)
        self.endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.descriptor = int(self._socket.getsockopt(zmq.FD))

    def has_news(self) -> bool:
        """Whether a message has arrived. It costs as much as receiving one, but less than an exception."""
        return bool(int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)

    def receive(self) -> tuple[bytes, Message]:
        """The sender and the message. Call it only if one has arrived."""
        who: bytes = _receive(self._socket)  # never without a frame behind it
        first = _receive(self._socket, 0, False)
        return who, _new(Message, (first.bytes, receive_frames(self._socket) if first.more else [], 0))

    def wait(self, also: int) -> bool:
        """Waits until a message has arrived or the descriptor `also` is readable, and returns whether it is
        the latter.
        """
        ready = zmq_poll([(self._socket, POLLIN), (also, POLLIN)], -1)
        return len(ready) != 1 or ready[0][0] == also

    def send(self, who: bytes, first: bytes, frames: list[memoryview], wait: bool = True) -> bool:
        """Whether it could be queued: False if the peer has gone or accepts no more, for a while with `wait`.
        Who is no client yet is not worth waiting for: all others would wait, too.
        """
        socket = self._socket
        try:
            _send(socket, who, SNDMORE if wait else SNDMORE | NOBLOCK)
            if frames:
                _send(socket, first, SNDMORE)
                send_frames(socket, frames)
            else:
                _send(socket, first)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        return True

    def close(self) -> None:
        """Drops unsent messages. Removes the socket's file, as libzmq does."""
        self._socket.close(0)
        if self._own_context:
            self._context.term()


def send_frames(socket: zmq.Socket[bytes], frames: list[memoryview]) -> None:
    """Sends the rest of a message."""
    last = len(frames) - 1
    for n, frame in enumerate(frames):
        socket.send(frame, 0 if n == last else zmq.SNDMORE, copy=len(frame) < COPY_BELOW)


def receive_frames(socket: zmq.Socket[bytes]) -> list[memoryview]:
    """Receives the rest of a message without copying; frames above the allowed number are dropped."""
    frames: list[memoryview] = []
    while True:
        frame = socket.recv(copy=False)
        if len(frames) <= MOST_PARTS:
            frames.append(frame.buffer)
        if not frame.more:
            return frames
