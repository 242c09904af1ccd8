"""How a process gives its ring to the one that drains the job's: over a local socket whose address follows
from the job's key.

The descriptor of the ring goes with the first message, so that the ring outlives a process that is killed
right after it. Whoever binds the address drains the rings: no file is needed, and there is only one at a
time. The connection stays open; its end tells each side that the other one is gone.
"""

from __future__ import annotations

import array
import contextlib
import errno
import hashlib
import os
import select
import socket
import struct
import threading
from collections.abc import Iterator
from typing import NamedTuple

from flagscale_perf.spine.processes import process_stat
from flagscale_perf.spine.ring import Ring

MAX_WAITING = 4096  # processes that are not received yet
UNSAID = "its process ended without reporting why"
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def job_key(*words: str) -> str:
    """The key of a job, from words that no other job of this user has."""
    job = "\0".join([*words, str(os.getuid())])
    return hashlib.sha256(os.fsencode(job)).hexdigest()[:16]


class Visitor(NamedTuple):
    """A process that has given its ring.

    Attributes:
        pid: of it, as the kernel says.
        ring_fd: descriptor of its ring.
        connection: to it.
    """

    pid: int
    ring_fd: int
    connection: socket.socket


class StrangerError(OSError):
    """The address belongs to another user's process."""


def connect(key: str) -> socket.socket | None:
    """A connection to the process that drains this job's rings; None if there is none. Raises OSError."""
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


def give(connection: socket.socket, ring_fd: int) -> None:
    """Sends the ring's descriptor. Raises OSError."""
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [ring_fd]))
    connection.sendmsg([b"\n"], [rights])


class Visit:
    """This process's ring in the hands of the one that drains the job's.

    Attributes:
        ring: this process's.
        is_met: set once it has been given.
    """

    def __init__(self, key: str, ring: Ring) -> None:
        self.ring = ring
        self.is_met = threading.Event()
        self._key = key
        self._connection: socket.socket | None = None

    def meet(self) -> bool:
        """Hands the ring over; False if no process drains the job's rings. Raises OSError."""
        connection = connect(self._key)
        if connection is None:
            return False
        assert self.ring.fd is not None
        try:
            give(connection, self.ring.fd)
        except BaseException:
            connection.close()
            raise
        connection.setblocking(True)
        self._connection = connection
        self.is_met.set()
        return True

    def lines(self) -> Iterator[bytes]:
        """Lines from the other side, until it is gone."""
        if self._connection is not None:
            with contextlib.suppress(OSError), self._connection, self._connection.makefile("rb") as lines:
                yield from lines

    def leave(self) -> None:
        """Closes the connection; the ring stays where it is."""
        if self._connection is not None:
            self._connection.close()


class Source:
    """A process that has given its ring, as the one that drains it sees it.

    Attributes:
        pid: of it.
        ring: its records.
        connection: descriptor of the way back to it.
        process: descriptor that becomes readable when it ends; None on an old kernel.
        end: why nothing more comes; None while it may.
    """

    def __init__(self, visitor: Visitor) -> None:
        """Raises OSError, ValueError or struct.error for what is no ring."""
        try:
            self.ring = Ring.attach(visitor.ring_fd)
        except BaseException:  # whatever it is, the descriptors must not leak
            os.close(visitor.ring_fd)
            visitor.connection.close()
            raise
        self.pid = visitor.pid
        self.connection = visitor.connection.detach()
        self.end: str | None = None
        self.process: int | None = None
        self._start: int | None = None  # where it has no descriptor
        try:
            self.process = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # an old kernel, no descriptor is left, or it has ended
            self._start = self._started()

    def why_over(self) -> str | None:
        """None while records may come; where the system does not say, the process is taken to live.

        Ask before the ring is read: what is gone stores nothing any more.
        """
        is_running = self._is_running()
        if end := self.ring.end:
            return end.reason
        return None if is_running else UNSAID

    def ask(self, question: str) -> None:
        """Asks the process something, one line; see `Ring.reply`. Never waits."""
        with contextlib.suppress(OSError):  # it is gone, or takes no more questions
            os.write(self.connection, f"{question}\n".encode())

    def answer(self, question: str) -> str | None:
        """Its answer; None while there is none."""
        return self.ring.answer_to(question)

    @property
    def is_cut_off(self) -> bool:
        """Whether nobody has the other end of the connection: the process has ended, or is about to."""
        poll = select.poll()
        poll.register(self.connection, 0)
        return bool(poll.poll(0))

    def release(self) -> None:
        """Unmaps the ring; the connection stays."""
        self.ring.release()
        process, self.process = self.process, None
        if process is not None:
            os.close(process)

    def _is_running(self) -> bool:
        if self.process is not None:  # also one that /proc hides from this process
            poll = select.poll()
            poll.register(self.process, select.POLLIN)
            return not poll.poll(0)
        now = self._started()
        return now is None or (now > 0 and self._start in (None, now))

    def _started(self) -> int | None:
        """When the process started; 0 once it has ended, None where the system does not say."""
        try:
            stat = process_stat(self.pid)
        except (OSError, ValueError):
            return None
        return 0 if stat is None else stat.start_ticks


class Door:
    """A socket on which one process receives the rings of others.

    Attributes:
        fd: its descriptor, to be handed to the process that receives the rings.
    """

    def __init__(self, listener: socket.socket) -> None:
        """Use `open` or `inherit`."""
        self._listener = listener
        self._coming: list[socket.socket] = []  # connected, and nothing given yet
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
        """Processes that have handed over a ring since the last call. Never waits."""
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
            except OSError:  # gone before it gave anything
                pass
            if visitor is None:
                connection.close()
            else:
                yield visitor

    def shut(self) -> None:
        """Refuses new connections; those that wait already are still received."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """Releases the address."""
        self._listener.close()
        for connection in self._coming:
            connection.close()
        self._coming.clear()


def _received(connection: socket.socket) -> Visitor | None:
    """Raises BlockingIOError before it has sent anything, OSError."""
    pid, uid = _peer(connection)
    message, fds, _, _ = socket.recv_fds(connection, 1, 4)
    if uid == os.getuid() and len(fds) == 1 and message:
        return Visitor(pid, fds[0], connection)
    for fd in fds:
        os.close(fd)
    return None


def _peer(connection: socket.socket) -> tuple[int, int]:
    """Pid and uid of the other side."""
    held = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(held)
    return pid, uid


def _address(key: str) -> str:
    """An address in the abstract namespace: no file, and gone with its last descriptor.

    It contains the namespace of process ids, as containers that share a network but do not see each other's
    processes need a writer each.
    """
    processes = 0
    with contextlib.suppress(OSError):
        processes = os.stat("/proc/self/ns/pid").st_ino
    return f"\0flagscale_perf.{key}.door.{processes}"
