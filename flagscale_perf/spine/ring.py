"""The capture buffer: fixed-size slots in shared memory between one producer (the training) and one consumer
(the writer).

    page 0 to 5 header: magic, sizes, tail, beats, dropped, number of the newest of these; as checksummed
                texts end reason, session id, summary path, producer, trouble, answer
    then        65,536 slots of 256 bytes, see `spine.slots`

The memory is reserved at creation, so a store can meet no full disk; it outlives the producer, so nothing is
lost when that is killed. Each slot carries its sequence number and a checksum over everything: a slot that is
half written, or whose stores another CPU sees in another order, does not check and counts as not there yet.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import weakref
import zlib
from collections.abc import Callable
from typing import NamedTuple

from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.records import TYPES, EventRecord, Record
from flagscale_perf.spine.slots import CRC_BYTES, MAX_PAYLOAD, PREFIX, SLOT_BYTES, fit_utf8

MAGIC = 0x34_46_52_45_50_53_46  # "FSPERF4"; the last character is the layout's version
SLOTS = 65_536
HEADER_BYTES = 24_576
MAX_ANSWER_BYTES = 16_000  # of a question and its answer
# 64-bit words of the header; producer and consumer write to different cache lines
_WORD_MAGIC, _WORD_SLOTS = 0, 1
_WORD_DROPPED, _WORD_CLOSED_AT, _WORD_NEWEST = 8, 9, 10
_WORD_TAIL, _WORD_BEATS = 16, 17


class _Text:
    """A text in the header that one side writes and the other waits for: crc32, length + 1, bytes."""

    def __init__(self, offset: int, size: int) -> None:
        self._offset, self._size = offset, size

    def __get__(self, ring: Ring, _: type[Ring]) -> str | None:
        held = ring._memory[self._offset : self._offset + self._size]
        length = int.from_bytes(held[4:8], "little") - 1
        if not 0 <= length <= self._size - 8:
            return None
        body = held[4 : 8 + length]
        return body[4:].decode() if zlib.crc32(body) == int.from_bytes(held[:4], "little") else None

    def __set__(self, ring: Ring, text: str) -> None:
        encoded = fit_utf8(text, self._size - 8)
        body = (len(encoded) + 1).to_bytes(4, "little") + encoded
        end = self._offset + 4 + len(body)
        ring._memory[self._offset : end] = zlib.crc32(body).to_bytes(4, "little") + body


class RingEnd(NamedTuple):
    """How the producer has closed the ring.

    Attributes:
        reason: see `RunEnd.reason`.
        at_ns: monotonic mark.
    """

    reason: str
    at_ns: int


class Ring:
    """One end of the ring.

    The producer calls `put`, `close` and `reply` and sets `producer` and `answering`; the consumer calls
    `take`, `commit`, `beat` and `answer_to`, and sets the rest.

    Attributes:
        fd: descriptor of the shared memory to hand to another process; None where it exists in this process
            only.
        slots: how many records it can hold.
        session: the session id once the consumer has claimed one.
        summary: the summary's path once the consumer has finished; "" if it could write none.
        producer: how the producer describes itself to the consumer; None if it has not.
        answering: makes the producer's answer to a question of the consumer, on a side thread.
    """

    _reason = _Text(512, 248)
    session = _Text(768, 248)
    summary = _Text(1024, 4096)
    producer = _Text(5120, 2048)
    _trouble = _Text(7168, 1024)
    _answer = _Text(8192, 16_384)

    def __init__(self, memory: mmap.mmap, fd: int | None) -> None:
        """Use `create` or `attach`."""
        self.fd = fd
        self.answering: Callable[[str], str] = lambda question: ""
        self._memory = memory
        self._view = memoryview(memory)
        self._words = self._view[:HEADER_BYTES].cast("Q")
        self.slots = self._words[_WORD_SLOTS]
        self._head = self._known_tail = 0  # the producer's
        self._room = self.slots  # 0 once nothing may be put
        layouts = {kind: registered.layout for kind, registered in TYPES.items() if registered.layout}
        self._packers = {kind: layout.packer() for kind, layout in layouts.items()}
        self._unpackers = {layout.slot: layout.unpack for layout in layouts.values()}

    @classmethod
    def create(cls, slots: int = SLOTS) -> Ring:
        """A new, empty ring; private to this process where no shared memory is available. Raises OSError
        where there is no memory at all.
        """
        size = HEADER_BYTES + slots * SLOT_BYTES
        fd: int | None = None
        try:
            fd = _shared_memory(size)
            memory = mmap.mmap(fd, size)
        except (AttributeError, OSError):  # AttributeError: no posix_fallocate on this system
            if fd is not None:
                os.close(fd)
            fd, memory = None, mmap.mmap(-1, size)
        words = memoryview(memory)[:HEADER_BYTES].cast("Q")
        words[_WORD_SLOTS] = slots
        words[_WORD_MAGIC] = MAGIC
        words.release()
        return cls(memory, fd)

    @classmethod
    def attach(cls, fd: int) -> Ring:
        """The other end of a ring; takes the descriptor over. Raises ValueError for another version's."""
        memory = mmap.mmap(fd, 0)
        magic, slots = struct.unpack_from("=QQ", memory)
        if magic != MAGIC or len(memory) != HEADER_BYTES + slots * SLOT_BYTES:
            raise ValueError(f"descriptor {fd} is not a ring of this version")
        return cls(memory, fd)

    def put(self, record: Record) -> None:
        """Stores the record, one thread at a time; counts a drop if the ring is full or a value does not fit.
        Does nothing once it has been left. Never raises, never waits.
        """
        head = self._head
        try:
            if head - self._known_tail >= self._room:
                if not self._room:
                    return
                self._known_tail = self._words[_WORD_TAIL]
                if head - self._known_tail >= self.slots:
                    self._drop(record)
                    return
            offset = HEADER_BYTES + head % self.slots * SLOT_BYTES
            self._packers[type(record)](self._view, offset, head + 1, record)
            self._head = head + 1
        except (struct.error, OverflowError, TypeError, AttributeError, LookupError):
            self._drop(record)

    def take(self, limit: int) -> list[Record]:
        """The oldest records, at most `limit`; they stay in the ring until `commit`."""
        return self._from(self._words[_WORD_TAIL], limit)

    def behind(self, count: int) -> list[Record]:
        """All records but the oldest `count`, which have been taken; they stay in the ring."""
        return self._from(self._words[_WORD_TAIL] + count, self.slots)

    def _from(self, tail: int, limit: int) -> list[Record]:
        records: list[Record] = []
        while len(records) < limit:
            record = self._read(tail + len(records))
            if record is None:
                break
            records.append(record)
        return records

    def commit(self, count: int) -> None:
        """Gives the slots of the oldest `count` records back."""
        self._words[_WORD_TAIL] += count

    @property
    def stored(self) -> int:
        """Records that this end's `put` has stored so far."""
        return self._head

    @property
    def saved(self) -> int:
        """Records given back by `commit` so far."""
        return self._words[_WORD_TAIL]

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be taken and given back."""
        return self._read(self._words[_WORD_TAIL]) is None

    def beat(self) -> None:
        """Shows that the consumer makes progress."""
        self._words[_WORD_BEATS] += 1

    @property
    def beats(self) -> int:
        """How often the consumer has called `beat`."""
        return self._words[_WORD_BEATS]

    @property
    def dropped(self) -> int:
        """Records lost so far."""
        return self._words[_WORD_DROPPED]

    @property
    def newest_dropped(self) -> int:
        """The `number` of the last lost record that has one; 0 where there is none."""
        return self._words[_WORD_NEWEST]

    def close(self, reason: str, at_ns: int) -> None:
        """Ends the producer's side; nothing may be put after it."""
        self._words[_WORD_CLOSED_AT] = at_ns
        self._reason = reason

    def leave(self) -> None:
        """This end puts nothing more, whoever still calls it."""
        self._room = 0

    @property
    def end(self) -> RingEnd | None:
        """The end that `close` was given; None before it."""
        reason = self._reason
        return None if reason is None else RingEnd(reason, self._words[_WORD_CLOSED_AT])

    @property
    def trouble(self) -> str:
        """What the consumer cannot write now, and why; "" while all is well."""
        return self._trouble or ""

    @trouble.setter
    def trouble(self, text: str) -> None:
        self._trouble = text

    def reply(self, question: str) -> None:
        """Answers the consumer, on a side thread of the producer's process. Never raises."""
        try:
            self._answer = f"{question}\n{self.answering(question)}"
        except Exception:  # what is asked about changes meanwhile; a consumer without an answer asks again
            return

    def answer_to(self, question: str) -> str | None:
        """The producer's answer; None while there is none to this question."""
        asked, _, answer = (self._answer or "").partition("\n")
        return answer if asked == question else None

    def release(self) -> None:
        """Unmaps the memory and closes the descriptor."""
        for view in (self._words, self._view):
            view.release()
        self._memory.close()
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def _drop(self, record: Record) -> None:
        self._words[_WORD_DROPPED] += 1
        number = getattr(record, "number", None)
        if isinstance(number, int) and 0 <= number < 1 << 63:
            self._words[_WORD_NEWEST] = number

    def _read(self, number: int) -> Record | None:
        offset = HEADER_BYTES + number % self.slots * SLOT_BYTES
        slot = self._memory[offset : offset + SLOT_BYTES]
        kind, length, sequence = PREFIX.unpack_from(slot, CRC_BYTES)
        if sequence != number + 1 or kind not in self._unpackers or length > MAX_PAYLOAD:
            return None
        body = slot[CRC_BYTES : CRC_BYTES + PREFIX.size + length]
        if zlib.crc32(body) != int.from_bytes(slot[:CRC_BYTES], "little"):
            return None
        return self._unpackers[kind](body)


class Producer:
    """Stores into a ring, safe where a process forks. `put` and `event` are called on one thread only; they
    neither wait nor raise.
    """

    def __init__(self, ring: Ring | None) -> None:
        """Keeps nothing if `ring` is None."""
        self._ring = ring
        _live.add(self)

    def put(self, record: Record) -> None:
        """Keeps the record; counts a drop if there is no room."""
        ring = self._ring
        if ring is not None:
            ring.put(record)

    @property
    def step(self) -> Callable[[Record], None]:
        """`put` of the ring itself, for what is called in every step."""
        return self.put if self._ring is None else self._ring.put

    def event(self, name: str, position: int, text: str) -> None:
        """Keeps an `EventRecord`; its text may be cut to 200 bytes."""
        self.put(EventRecord(name, monotonic_ns(), position, text))

    def answer_by(self, answering: Callable[[str], str]) -> None:
        """What answers questions of the process that drains the ring, on a side thread of this one."""
        if self._ring is not None:
            self._ring.answering = answering

    def _close(self, reason: str) -> Ring | None:
        """Stores nothing more. Returns the closed ring; None the second time and in a forked child."""
        ring, self._ring = self._ring, None
        if ring is not None:
            ring.leave()
            ring.close(reason, monotonic_ns())
        return ring

    def _abandon(self) -> None:
        """Called in a forked child: the ring stays the parent's."""
        ring, self._ring = self._ring, None
        if ring is not None:
            ring.leave()


_live: weakref.WeakSet[Producer] = weakref.WeakSet()


def _abandon_all() -> None:
    for producer in list(_live):
        producer._abandon()


os.register_at_fork(after_in_child=_abandon_all)


def _shared_memory(size: int) -> int:
    """A descriptor of `size` reserved bytes that no path leads to. Raises OSError."""
    try:
        fd = os.memfd_create("flagscale_perf", os.MFD_CLOEXEC)
    except (AttributeError, OSError):  # not Linux, or forbidden
        fd, path = tempfile.mkstemp(prefix="flagscale_perf_")
        os.unlink(path)
    try:
        os.posix_fallocate(fd, 0, size)
    except (AttributeError, OSError):
        os.close(fd)
        raise
    return fd
