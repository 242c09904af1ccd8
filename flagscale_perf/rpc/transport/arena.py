"""Shared memory that the server allocates, seals, and passes to one client as a file descriptor.

It has no name that could be guessed, attached to or left behind. The seals forbid every process to resize it,
so no access can hit a missing page; the memory for replies can be mapped read-only by others. All pages are
touched at creation, so the first call costs as much as any other.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from pathlib import Path

from flagscale_perf.rpc.errors import InvalidMessage, Refused

SLOT_ALIGNMENT = 4096
ALIGNMENT = 64
F_SEAL_FUTURE_WRITE = 0x10  # Linux 5.1; missing from the module fcntl
SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
KEEP_FREE_BYTES = 256 * 2**20


class Slot:
    """A share of an arena: the memory for the arrays of one call or one reply.

    Attributes:
        size: in bytes.
        plain: whether arrays are only copied in, one behind the other.
    """

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self.size = len(view)
        self._used = 0
        self.plain = True
        self._address = 0

    def begin(self, call: int) -> None:
        """Frees the whole slot for the next message."""
        self._used = 0
        self.plain = True

    def lend(self, size: int) -> memoryview | None:
        """Memory to write an array into in place; None if it does not fit."""
        room = self.reserve(size)
        if room is None:
            return None
        self.plain = False
        return room[1]

    def find(self, data: memoryview) -> int | None:
        """The offset of an array that was written in place; None for any other array."""
        if self.plain or data.readonly or not len(data):
            return None
        if not self._address:
            self._address = _address(self._view)
        offset = _address(data) - self._address
        return offset if 0 <= offset <= self._used - len(data) else None

    def store(self, data: memoryview) -> int | None:
        """Copies an array in and returns its offset; None if it does not fit."""
        room = self.reserve(len(data))
        if room is None:
            return None
        room[1][:] = data
        return room[0]

    def put(self, offset: int, data: memoryview) -> None:
        """Copies an array to an offset from an earlier `store` of the same layout."""
        self._view[offset : offset + len(data)] = data

    def view(self, offset: int, size: int) -> memoryview:
        """What the other side wrote. Raises `InvalidMessage` if it is not entirely inside."""
        if offset < 0 or offset + size > self.size:
            raise InvalidMessage(
                f"an array of {size} bytes at {offset} of {self.size} bytes of shared memory"
            )
        return self._view[offset : offset + size].toreadonly()

    def reserve(self, size: int) -> tuple[int, memoryview] | None:
        """The offset of the next array, and its memory; None if it does not fit."""
        offset = self._used
        if offset + size > self.size:
            return None
        self._used = offset + size + (-size % ALIGNMENT)
        return offset, self._view[offset : offset + size]

    def release(self) -> None:
        """Unmaps the memory."""
        self._view.release()


class Arena:
    """A piece of mapped shared memory, divided into slots.

    Attributes:
        descriptor: to be handed over; -1 once it is closed.
        slots: of equal size.
    """

    def __init__(self, descriptor: int, memory: mmap.mmap, slots: int) -> None:
        self.descriptor = descriptor
        self._memory = memory
        self._view = memoryview(memory)
        share = len(memory) // slots // SLOT_ALIGNMENT * SLOT_ALIGNMENT
        self.slots = [Slot(self._view[n * share : (n + 1) * share]) for n in range(slots)]

    def close_descriptor(self) -> None:
        """Closes the descriptor; the mapping stays."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def close(self) -> None:
        """Closes the arena; the memory is freed with the last array in it."""
        self.close_descriptor()
        for slot in self.slots:
            slot.release()
        try:
            self._view.release()
            self._memory.close()
        except BufferError:
            pass  # an array in it is still in use


def make_arena(size: int, slots: int, peer_writes: bool) -> Arena:
    """Allocates new memory with all its pages. Raises `Refused` if the machine does not have enough.

    Args:
        size: in bytes.
        slots: among which it is shared out.
        peer_writes: whether the process that gets the descriptor may write.
    """
    free = free_bytes()
    if size + KEEP_FREE_BYTES > free:
        raise Refused(
            f"shared memory of {size} bytes, where {free} are free and {KEEP_FREE_BYTES} must stay so: "
            "lower arena_bytes"
        )
    descriptor = os.memfd_create("flagscale_perf_rpc", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size)
        memory = mmap.mmap(descriptor, size, mmap.MAP_SHARED | mmap.MAP_POPULATE)
        seals = SIZE_SEALS if peer_writes else SIZE_SEALS | F_SEAL_FUTURE_WRITE
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(descriptor)
        raise
    return Arena(descriptor, memory, slots)


def open_arena(descriptor: int, size: int, slots: int, writable: bool) -> Arena:
    """Maps received memory. Raises `InvalidMessage` if it could be resized or is smaller than announced."""
    try:
        held = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        held = 0
    if held & SIZE_SEALS != SIZE_SEALS or os.fstat(descriptor).st_size < size:
        raise InvalidMessage("shared memory that is not sealed, or smaller than it is said to be")
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    memory = mmap.mmap(descriptor, size, mmap.MAP_SHARED | mmap.MAP_POPULATE, protection)
    return Arena(descriptor, memory, slots)


def arena_bytes(asked: int, slots: int) -> int:
    """The size asked for, in whole slots."""
    return -(-asked // slots // SLOT_ALIGNMENT) * SLOT_ALIGNMENT * slots


def free_bytes() -> int:
    """Memory available without swapping, on the machine and in the control group."""
    rows = dict(row.split(":") for row in Path("/proc/meminfo").read_text().splitlines())
    free = int(rows["MemAvailable"].split()[0]) * 1024
    try:
        most = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
        return free if most == "max" else min(free, int(most) - int(used))
    except (OSError, ValueError):
        return free


def _address(data: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(data))
