"""How a process gives its ring to the one that drains the job's: over a local socket whose address follows
from the job's key.

The descriptor of the ring goes with the first message, so that the ring outlives a process that is killed
right after it. Who can bind the address drains: there is no file, and no second one while it lives. The
connection stays; its end tells each side that the other one is gone.
"""

from __future__ import annotations

import array
import contextlib
import errno
import json
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.peers.member import ring_prefix

MAX_WAITING = 4096  # processes that nobody has received yet
MAX_HELLO_BYTES = 4096
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class Visitor(NamedTuple):
    """A process that has given its ring.

    Attributes:
        pid: of it, as the kernel says.
        hello: what it says about itself, JSON types.
        ring_fd: descriptor of its ring.
        connection: to it.
    """

    pid: int
    hello: Any
    ring_fd: int
    connection: socket.socket


class StrangerError(OSError):
    """Another user's process has the address."""


def connect(key: str) -> socket.socket | None:
    """To the process that drains this job's rings; None if there is none. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.connect(_address(key))
        if _peer(connection)[1] != os.getuid():
            raise StrangerError(f"the address of {key} is another user's")
    except ConnectionRefusedError:
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    return connection


def give(connection: socket.socket, ring_fd: int, hello: Any) -> None:
    """The ring, and what the other side should know about this process. Raises OSError."""
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [ring_fd]))
    connection.sendmsg([dump(hello).encode()[: MAX_HELLO_BYTES - 1] + b"\n"], [rights])


class Door:
    """Where rings are received.

    Attributes:
        fd: to be handed to the process that receives them.
    """

    def __init__(self, listener: socket.socket) -> None:
        """Use `open` or `inherit`."""
        self._listener = listener
        self._coming: list[socket.socket] = []  # connected, and nothing said yet
        self.fd = listener.fileno()

    @classmethod
    def open(cls, key: str) -> Door | None:
        """None if another process of the job has it. Raises OSError."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(_address(key))
            listener.listen(MAX_WAITING)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                return None
            raise
        return cls(listener)

    @classmethod
    def inherit(cls, fd: int) -> Door:
        """One that another process has opened; takes the descriptor over."""
        return cls(socket.socket(fileno=fd))

    def visitors(self) -> Iterator[Visitor]:
        """Those that have come since the last call. Never waits."""
        self._listener.setblocking(False)
        with contextlib.suppress(OSError):  # none is waiting, or the door is shut
            while True:
                connection, _ = self._listener.accept()
                connection.setblocking(False)
                self._coming.append(connection)
        coming, self._coming = self._coming, []
        for connection in coming:
            visitor = None
            try:
                visitor = _received(connection)
            except BlockingIOError:
                self._coming.append(connection)
                continue
            except (OSError, ValueError):  # gone before it said a word, or no process of ours
                pass
            if visitor is None:
                connection.close()
            else:
                yield visitor

    def shut(self) -> None:
        """Lets nobody in any more; those who wait already still come."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """Gives the address back."""
        self._listener.close()
        for connection in self._coming:
            connection.close()
        self._coming.clear()


def _received(connection: socket.socket) -> Visitor | None:
    """Raises BlockingIOError before it has said anything, OSError, ValueError."""
    pid, uid = _peer(connection)
    message, fds, _, _ = socket.recv_fds(connection, MAX_HELLO_BYTES, 4)
    if uid != os.getuid() or len(fds) != 1 or not message.endswith(b"\n"):
        for fd in fds:
            os.close(fd)
        return None
    try:
        return Visitor(pid, json.loads(message), fds[0], connection)
    except (ValueError, RecursionError):
        os.close(fds[0])
        return None


def _peer(connection: socket.socket) -> tuple[int, int]:
    """Pid and uid of the other side."""
    held = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(held)
    return pid, uid


def _address(key: str) -> str:
    """In the abstract namespace: no file, gone with its last descriptor.

    The namespace of process ids is part of it: containers that share a network but do not see each other's
    processes need a writer each.
    """
    processes = 0
    with contextlib.suppress(OSError):
        processes = os.stat("/proc/self/ns/pid").st_ino
    return f"\0{ring_prefix(key)}door.{processes}"
