"""Messages over a SEQPACKET unix socket: several times faster than ZeroMQ, between processes of one user on
one machine.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time

from flagscale_perf.rpc.errors import CallTimeout, PeerGone, Refused
from flagscale_perf.rpc.transport.header import MOST_FIRST_BYTES
from flagscale_perf.rpc.transport.link_zeromq import Message
from flagscale_perf.rpc.transport.spin import Spin

SEND_DEADLINE = struct.pack("ll", 0, 250_000)  # timeval: for a peer that does not receive
LOOK_EVERY = struct.pack("ll", 0, 100_000)
BUFFER_BYTES = 1 << 20
CREDENTIALS = struct.Struct("3i")
_new = tuple.__new__  # half the time of a NamedTuple's own constructor
GONE = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.EBADF)


class UnixLink:
    """One end of a connection. It carries no frames."""

    carries_frames = False
    name = "unix"

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        connected.setblocking(True)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, SEND_DEADLINE)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, LOOK_EVERY)
        self._buffer = bytearray(MOST_FIRST_BYTES + 1)
        self._view = memoryview(self._buffer).toreadonly()
        look = select.poll()
        look.register(connected, select.POLLIN)
        self._spin = Spin(look.poll)

    @classmethod
    def connect(cls, path: str) -> UnixLink:
        """Raises `Refused` if no process of this user listens there."""
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            connected.connect(path)
            check_peer(connected)
        except OSError as error:
            connected.close()
            raise Refused(f"no unix socket at {path}: {error.strerror or error}") from None
        except Refused:
            connected.close()
            raise
        return cls(connected)

    def send(self, first: bytes, frames: list[memoryview], deadline_ns: int) -> None:
        """Raises `PeerGone` if the peer has ended, `CallTimeout` if it does not receive."""
        try:
            self.socket.send(first)
        except BlockingIOError:
            raise CallTimeout("the other process takes no messages") from None
        except OSError as error:
            if error.errno in GONE:
                raise PeerGone("the other process ended, or closed the connection") from None
            raise

    def receive(self, deadline_ns: int) -> Message:
        """Waits for a message. Raises `CallTimeout` or `PeerGone`."""
        begun = self._spin.wait()
        while True:
            try:
                size = self.socket.recv_into(self._buffer)
            except BlockingIOError:
                if time.monotonic_ns() >= deadline_ns:
                    raise CallTimeout("no reply in time") from None
                continue
            except OSError as error:
                if error.errno in GONE:
                    size = 0
                else:
                    raise
            if not size:
                raise PeerGone("the server ended, or closed the connection")
            there = time.monotonic_ns()
            self._spin.ended(there - begun)
            return _new(Message, (bytes(self._view[:size]), [], there))

    def receive_now(self) -> Message | None:
        """The next message, valid until another one is received; None if the peer has ended."""
        try:
            size = self.socket.recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return _new(Message, (b"", [], 0))
        except OSError:
            return None
        return _new(Message, (self._view[:size], [], 0)) if size else None

    def send_descriptors(self, first: bytes, descriptors: list[int]) -> None:
        """Sends a message with open files."""
        socket.send_fds(self.socket, [first], descriptors)

    def receive_descriptors(self, most: int, deadline_ns: int) -> tuple[bytes, list[int]]:
        """Receives a message with open files, which the caller must close. Raises `CallTimeout` or
        `PeerGone`.
        """
        while True:
            try:
                first, descriptors, _, _ = socket.recv_fds(self.socket, MOST_FIRST_BYTES, most)
                break
            except BlockingIOError:
                if time.monotonic_ns() >= deadline_ns:
                    raise CallTimeout("the server hands over no memory in time") from None
        if not first:
            raise PeerGone("the server ended, or closed the connection")
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        return first, descriptors

    def close(self) -> None:
        """Closes the link, which the peer notices at once."""
        self._view.release()
        self.socket.close()


def check_peer(connected: socket.socket) -> None:
    """Raises `Refused` if the other process belongs to another user."""
    packed = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    process, user, _ = CREDENTIALS.unpack(packed)
    if user != os.getuid():
        raise Refused(f"process {process} of user {user} is at the other end; only user {os.getuid()} may be")


def listen(path: str, backlog: int) -> socket.socket:
    """A listening socket that only this user may connect to."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    before = os.umask(0o077)
    try:
        listener.bind(path)
    except OSError as error:
        listener.close()
        raise Refused(
            f"cannot listen at {path}: {error.strerror or error}; set XDG_RUNTIME_DIR to another directory"
        ) from None
    finally:
        os.umask(before)
    listener.listen(backlog)
    listener.setblocking(False)
    return listener
