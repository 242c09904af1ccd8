"""Shared memory that the server makes, seals, and hands to one client as a descriptor.

No name exists that somebody could guess, attach or leave behind. The seals forbid every process to resize it,
so no access can meet a page that is gone; what the server writes replies into can be mapped by others for
reading only. The pages are touched when it is made: the first call costs as much as any other.
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
F_SEAL_FUTURE_WRITE = 0x10  # Linux 5.1; the module fcntl does not have it
SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
KEEP_FREE_BYTES = 256 * 2**20


class Slot:
    """A share of an arena: what one call, or one reply, has for its arrays.

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
        """For the next message: all of it is free."""
        self._used = 0
        self.plain = True

    def lend(self, size: int) -> memoryview | None:
        """Memory to write an array into, in place; None where it does not fit."""
        room = self.reserve(size)
        if room is None:
            return None
        self.plain = False
        return room[1]

    def find(self, data: memoryview) -> int | None:
        """Where an array lies that was written in place; None for any other."""
        if self.plain or data.readonly or not len(data):
            return None
        if not self._address:
            self._address = _address(self._view)
        offset = _address(data) - self._address
        return offset if 0 <= offset <= self._used - len(data) else None

    def store(self, data: memoryview) -> int | None:
        """Copies an array in and says where; None where it does not fit."""
        room = self.reserve(len(data))
        if room is None:
            return None
        room[1][:] = data
        return room[0]

    def put(self, offset: int, data: memoryview) -> None:
        """Copies an array to where `store` has put such a one."""
        self._view[offset : offset + len(data)] = data

    def view(self, offset: int, size: int) -> memoryview:
        """What the other side wrote. Raises `InvalidMessage` where it is not all inside."""
        if offset < 0 or offset + size > self.size:
            raise InvalidMessage(
                f"an array of {size} bytes at {offset} of {self.size} bytes of shared memory"
            )
        return self._view[offset : offset + size].toreadonly()

    def reserve(self, size: int) -> tuple[int, memoryview] | None:
        """Where the next array goes, and the memory there; None where it does not fit."""
        offset = self._used
        if offset + size > self.size:
            return None
        self._used = offset + size + (-size % ALIGNMENT)
        return offset, self._view[offset : offset + size]

    def release(self) -> None:
        """Lets the memory go."""
        self._view.release()


class Arena:
    """A piece of shared memory, mapped, in slots.

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
        """The mapping stays."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def close(self) -> None:
        """The memory goes with the last array that lies in it."""
        self.close_descriptor()
        for slot in self.slots:
            slot.release()
        try:
            self._view.release()
            self._memory.close()
        except BufferError:
            pass  # somebody still holds an array of it


def make_arena(size: int, slots: int, peer_writes: bool) -> Arena:
    """New memory, all of it there. Raises `Refused` where the machine does not have so much.

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
    """Maps what was received. Raises `InvalidMessage` where it could be resized or is smaller than it is said
    to be.
    """
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
    """What is asked for, in whole slots."""
    return -(-asked // slots // SLOT_ALIGNMENT) * SLOT_ALIGNMENT * slots


def free_bytes() -> int:
    """What can be had without swapping, by the machine and by the control group."""
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
