"""Shared memory that the server allocates, seals, and lets one client open: its file has no name, and is
reached as `/proc/PID/fd/N`, which the kernel opens to processes of the same user only.

The seals forbid every process to resize it, so no access can hit a missing page; only the server can
write to the memory for replies. All pages are touched at creation, so the first call costs as much as any
other.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
from pathlib import Path

from tensor_rpc.errors import InvalidMessage, Refused

PAGE = 4096
ALIGNMENT = 64
F_SEAL_FUTURE_WRITE = 0x10  # Linux 5.1; missing from the module fcntl
SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
KEEP_FREE_BYTES = 256 * 2**20


class Slot:
    """A share of an arena: the memory for the arrays of one call or one reply."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._used = 0
        self._address = 0

    def begin(self) -> None:
        """Frees the whole slot for the next message."""
        self._used = 0

    def lend(self, size: int) -> memoryview | None:
        """Memory to write an array into in place; None if it does not fit."""
        begin = self._used
        if begin + size > len(self._view):
            return None
        self._used = begin + size + (-size % ALIGNMENT)
        return self._view[begin : begin + size]

    def store(self, data: memoryview) -> int | None:
        """The offset of an array, which is copied in unless it was written in place; None if it does not
        fit.
        """
        offset = self._find(data)
        if offset is not None:
            return offset
        offset, room = self._used, self.lend(len(data))
        if room is None:
            return None
        room[:] = data
        return offset

    def _find(self, data: memoryview) -> int | None:
        if not self._used or data.readonly or not len(data):
            return None
        self._address = self._address or _address(self._view)
        offset = _address(data) - self._address
        return offset if 0 <= offset <= self._used - len(data) else None

    def view(self, offset: int, size: int) -> memoryview:
        """What the other side wrote. Raises `InvalidMessage` if it is not entirely inside."""
        if offset < 0 or offset + size > len(self._view):
            raise InvalidMessage(
                f"an array of {size} bytes at {offset} of {len(self._view)} bytes of shared memory"
            )
        return self._view[offset : offset + size].toreadonly()

    def release(self) -> None:
        """Unmaps the memory."""
        self._view.release()


class Arena:
    """A piece of mapped shared memory, divided into slots.

    Attributes:
        descriptor: of its file.
        inode: of its file.
        size: in bytes.
        slots: of equal size.
    """

    def __init__(self, descriptor: int, memory: mmap.mmap, slots: int) -> None:
        self.descriptor = descriptor
        self.inode = os.fstat(descriptor).st_ino
        self.size = len(memory)
        self._memory = memory
        self._view = memoryview(memory)
        share = self.size // slots // PAGE * PAGE
        self.slots = [Slot(self._view[n * share : (n + 1) * share]) for n in range(slots)]

    def close(self) -> None:
        """Closes the file; the memory is freed with the last array in it."""
        os.close(self.descriptor)
        for slot in self.slots:
            slot.release()
        with contextlib.suppress(BufferError):  # an array in it is still in use
            self._view.release()
            self._memory.close()


def make_arena(size: int, slots: int, peer_writes: bool) -> Arena:
    """Allocates new memory with all its pages. Raises `Refused` if the machine does not have enough.

    Args:
        size: in bytes, and so many that the slots are whole pages.
        slots: among which it is divided.
        peer_writes: whether another process may write.
    """
    size = -(-size // slots // PAGE) * PAGE * slots
    check_free(size)
    descriptor = os.memfd_create("tensor_rpc", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size)
        memory = mmap.mmap(descriptor, size, mmap.MAP_SHARED | mmap.MAP_POPULATE)
        seals = SIZE_SEALS if peer_writes else SIZE_SEALS | F_SEAL_FUTURE_WRITE
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(descriptor)
        raise
    return Arena(descriptor, memory, slots)


def open_arena(process: int, descriptor: int, inode: int, slots: int, writable: bool) -> Arena:
    """Maps the memory of another process of this user. Raises `Refused` where it cannot be opened, as that
    process is in another container, or is not sealed as it should be.
    """
    mode = os.O_RDWR if writable else os.O_RDONLY
    try:
        own = os.open(f"/proc/{process}/fd/{descriptor}", mode | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise Refused(f"the server's shared memory cannot be opened: {error.strerror}") from None
    try:
        if os.fstat(own).st_ino != inode or not _is_sealed(own):
            raise Refused("the server's shared memory is not sealed, or not where it is said to be")
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        memory = mmap.mmap(own, 0, mmap.MAP_SHARED | mmap.MAP_POPULATE, protection)
    except BaseException:
        os.close(own)
        raise
    return Arena(own, memory, slots)


def _is_sealed(descriptor: int) -> bool:
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & SIZE_SEALS == SIZE_SEALS
    except OSError:  # no file of shared memory
        return False


def check_free(size: int) -> None:
    """Raises `Refused` if this machine, or the control group, cannot spare so much memory."""
    rows = dict(row.split(":") for row in Path("/proc/meminfo").read_text().splitlines())
    free = int(rows["MemAvailable"].split()[0]) * 1024
    with contextlib.suppress(OSError, ValueError):  # no control group, or no limit
        most = int(Path("/sys/fs/cgroup/memory.max").read_text())
        free = min(free, most - int(Path("/sys/fs/cgroup/memory.current").read_text()))
    if size + KEEP_FREE_BYTES > free:
        raise Refused(
            f"shared memory of {size} bytes, where {free} are free and {KEEP_FREE_BYTES} must stay so: "
            "lower arena_bytes"
        )


def _address(data: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(data))
