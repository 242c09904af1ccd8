"""The capture buffer: fixed-size slots in shared memory between one producer (the training) and one consumer
(the writer).

    page 0, 1   header: magic, sizes, tail, beats, dropped; end reason, session id, summary path and producer as checksummed texts
    then        65,536 slots of 256 bytes: crc32 | kind | length | sequence number | record

The memory is reserved at creation, so a store can meet no full disk; it outlives the producer, so nothing is
lost when that is killed. Each slot carries its sequence number and a checksum over everything: a slot that is
half written, or whose stores another CPU sees in another order, does not check and counts as not there yet.
"""

from __future__ import annotations

import functools
import mmap
import os
import struct
import tempfile
import zlib
from typing import Any, NamedTuple, get_type_hints

from flagscale_perf.spine.records import EventRecord
from flagscale_perf.training.records import MarksRecord, StepRecord

MAGIC = 0x32_46_52_45_50_53_46  # "FSPERF2"; the last character is the layout's version
SLOT_BYTES = 256
SLOTS = 65_536
_HEADER_BYTES = 8192
# 64-bit words of the header; producer and consumer write to different cache lines
_WORD_MAGIC, _WORD_SLOTS, _WORD_DROPPED, _WORD_CLOSED_AT, _WORD_TAIL, _WORD_BEATS = 0, 1, 8, 9, 16, 17
_PREFIX = struct.Struct("<BxHQ")  # kind, length, sequence number; after the 4 bytes of the checksum
_PREFIX_FIELDS = 3
_CRC_BYTES = 4
_MAX_PAYLOAD = SLOT_BYTES - _CRC_BYTES - _PREFIX.size

_WIDE = frozenset({"model_flops", "hardware_flops"})  # a batch of a large model passes 2^63
_TEXT_BYTES = {"name": 16, "text": 200}
_NONE = -(2**63)
_NONE_WIDE = (-(2**127)).to_bytes(16, "little", signed=True)

MARKS_PER_SLOT = 28

RingRecord = StepRecord | MarksRecord | EventRecord


class _Layout:
    """How one kind of record lies in a slot, derived from its fields: 8 bytes an integer, 16 a wide one,
    texts padded with NUL.
    """

    def __init__(self, kind: int, record_type: type[StepRecord] | type[EventRecord]) -> None:
        self._kind = kind
        self._make = record_type._make
        hints = get_type_hints(record_type)
        self._wide = [i for i, name in enumerate(hints) if name in _WIDE]
        self._texts = [(i, _TEXT_BYTES[name]) for i, (name, hint) in enumerate(hints.items()) if hint is str]
        sizes = dict(self._texts) | dict.fromkeys(self._wide, 16)
        self._optional = [i for i, hint in enumerate(hints.values()) if hint == int | None and i not in sizes]
        self._struct = struct.Struct(
            _PREFIX.format + "".join(f"{sizes[i]}s" if i in sizes else "q" for i in range(len(hints)))
        )
        self._length = self._struct.size - _PREFIX.size
        assert self._length <= _MAX_PAYLOAD

    def pack(self, sequence: int, record: Any) -> bytes:
        """The slot behind its checksum. Raises struct.error, OverflowError, AttributeError or TypeError for a
        value that does not fit.
        """
        values = list(record)
        for i in self._optional:
            if values[i] is None:
                values[i] = _NONE
        for i in self._wide:
            values[i] = _wide(values[i])
        for i, size in self._texts:
            values[i] = fit_utf8(str(values[i]), size)
        return self._struct.pack(self._kind, self._length, sequence, *values)

    def unpack(self, body: bytes) -> StepRecord | EventRecord:
        """The record that `pack` was given."""
        values: list[Any] = [
            None if value == _NONE else value for value in self._struct.unpack(body)[_PREFIX_FIELDS:]
        ]
        for i in self._wide:
            values[i] = None if values[i] == _NONE_WIDE else int.from_bytes(values[i], "little", signed=True)
        for i, _ in self._texts:
            values[i] = values[i].rstrip(b"\0").decode()
        return self._make(values)


class _StepLayout(_Layout):
    """The same for the one record of every step, its fields by name: half the time."""

    def pack(self, sequence: int, record: StepRecord) -> bytes:
        """As `_Layout.pack`."""
        (
            *counted, device_ns, eval_ns, checkpoint_ns, log_ns, samples, tokens, skipped_samples, microbatches,
            model_flops, hardware_flops, memory, peak, reserved, retries, self_ns,
        ) = record  # fmt: skip
        return self._struct.pack(
            self._kind, self._length, sequence, *counted,
            _NONE if device_ns is None else device_ns, eval_ns, checkpoint_ns, _NONE if log_ns is None else log_ns,
            samples, tokens, skipped_samples, microbatches, _wide(model_flops), _wide(hardware_flops),
            _NONE if memory is None else memory, _NONE if peak is None else peak, _NONE if reserved is None else reserved,
            _NONE if retries is None else retries, _NONE if self_ns is None else self_ns,
        )  # fmt: skip


class _MarksLayout:
    """Marks as they are, 8 bytes each, behind the iteration and how many marks the step has."""

    def __init__(self, kind: int) -> None:
        self._kind = kind
        self._structs = [struct.Struct(f"{_PREFIX.format}qI{count}q") for count in range(MARKS_PER_SLOT + 1)]
        assert self._structs[-1].size - _PREFIX.size <= _MAX_PAYLOAD

    def pack(self, sequence: int, record: Any) -> bytes:
        """As `_Layout.pack`."""
        layout = self._structs[len(record.marks)]
        return layout.pack(
            self._kind, layout.size - _PREFIX.size, sequence, record.iteration, record.total, *record.marks
        )

    def unpack(self, body: bytes) -> MarksRecord:
        """The record that `pack` was given."""
        layout = self._structs[(len(body) - self._structs[0].size) // 8]
        iteration, total, *marks = layout.unpack(body)[_PREFIX_FIELDS:]
        return MarksRecord(iteration, total, tuple(marks))


@functools.lru_cache(maxsize=256)
def _wide(value: int | None) -> bytes:
    """16 bytes; the FLOPs of a step are mostly those of the one before."""
    return _NONE_WIDE if value is None else value.to_bytes(16, "little", signed=True)


def fit_utf8(text: str, size: int) -> bytes:
    """At most `size` bytes of UTF-8 that end between two characters."""
    encoded = text.encode("utf-8", "backslashreplace")[:size]
    return encoded.decode("utf-8", "ignore").encode()


_LAYOUTS: dict[type[RingRecord], _Layout | _MarksLayout] = {
    StepRecord: _StepLayout(1, StepRecord),
    EventRecord: _Layout(2, EventRecord),
    MarksRecord: _MarksLayout(3),
}
_KINDS = dict(enumerate(_LAYOUTS.values(), 1))


class _Text(NamedTuple):
    """A text in the header that one side writes once and the other waits for: crc32, length + 1, bytes."""

    offset: int
    size: int


_REASON, _SESSION, _SUMMARY, _PRODUCER = (
    _Text(512, 248),
    _Text(768, 248),
    _Text(1024, 4096),
    _Text(5120, 2048),
)
ANONYMOUS = "flagscale_perf"


class RingEnd(NamedTuple):
    """What the producer said last.

    Attributes:
        reason: see `RunEnd.reason`.
        at_ns: monotonic mark.
    """

    reason: str
    at_ns: int


class Ring:
    """One end of the ring.

    The producer calls `put` and `close` and sets `producer`; the consumer calls `take`, `commit` and `beat`,
    and sets the rest.

    Attributes:
        fd: descriptor of the shared memory to hand to another process; None where it exists in this process
            only.
        slots: how many records it can hold.
    """

    def __init__(self, memory: mmap.mmap, fd: int | None) -> None:
        """Use `create` or `attach`."""
        self.fd = fd
        self._memory = memory
        self._words = memoryview(memory)[:_HEADER_BYTES].cast("Q")
        self.slots = self._words[_WORD_SLOTS]
        self._head = self._known_tail = 0  # the producer's

    @classmethod
    def create(cls, slots: int = SLOTS, name: str = ANONYMOUS) -> Ring:
        """A new, empty ring, its memory so called in /proc/PID/fd. Raises OSError where not even private
        memory is to be had.
        """
        size = _HEADER_BYTES + slots * SLOT_BYTES
        fd: int | None = None
        try:
            fd = _shared_memory(size, name)
            memory = mmap.mmap(fd, size)
        except (AttributeError, OSError):  # AttributeError: no posix_fallocate on this system
            if fd is not None:
                os.close(fd)
            fd, memory = None, mmap.mmap(-1, size)
        words = memoryview(memory)[:_HEADER_BYTES].cast("Q")
        words[_WORD_SLOTS] = slots
        words[_WORD_MAGIC] = MAGIC
        words.release()
        return cls(memory, fd)

    @classmethod
    def attach(cls, fd: int) -> Ring:
        """The other end of a ring created elsewhere; takes the descriptor over. Raises ValueError if it is no
        ring.
        """
        memory = mmap.mmap(fd, 0)
        magic, slots = struct.unpack_from("=QQ", memory)
        if magic != MAGIC or len(memory) != _HEADER_BYTES + slots * SLOT_BYTES:
            raise ValueError(f"descriptor {fd} is no ring of this version")
        return cls(memory, fd)

    def put(self, record: RingRecord) -> None:
        """Stores the record; counts a drop if the ring is full or a value does not fit. Never raises, never
        waits.
        """
        head = self._head
        try:
            if head - self._known_tail >= self.slots:
                self._known_tail = self._words[_WORD_TAIL]
                if head - self._known_tail >= self.slots:
                    self._words[_WORD_DROPPED] += 1
                    return
            body = _LAYOUTS[type(record)].pack(head + 1, record)
            offset = _HEADER_BYTES + head % self.slots * SLOT_BYTES
            self._memory[offset : offset + _CRC_BYTES + len(body)] = (
                zlib.crc32(body).to_bytes(_CRC_BYTES, "little") + body
            )
            self._head = head + 1
        except (struct.error, OverflowError, TypeError, AttributeError, LookupError):
            self._words[_WORD_DROPPED] += 1

    def take(self, limit: int) -> list[RingRecord]:
        """The oldest records, at most `limit`; they stay in the ring until `commit`."""
        tail = self._words[_WORD_TAIL]
        records: list[RingRecord] = []
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
    def saved(self) -> int:
        """Records given back by `commit` so far."""
        return self._words[_WORD_TAIL]

    def beat(self) -> None:
        """The consumer gets on with its work."""
        self._words[_WORD_BEATS] += 1

    @property
    def beats(self) -> int:
        """How often it has said so."""
        return self._words[_WORD_BEATS]

    @property
    def dropped(self) -> int:
        """Records lost so far."""
        return self._words[_WORD_DROPPED]

    def close(self, reason: str, at_ns: int) -> None:
        """The producer's last word; nothing is put after it."""
        self._words[_WORD_CLOSED_AT] = at_ns
        self._set_text(_REASON, reason)

    @property
    def end(self) -> RingEnd | None:
        """What `close` was given; None before it."""
        reason = self._text(_REASON)
        return None if reason is None else RingEnd(reason, self._words[_WORD_CLOSED_AT])

    @property
    def producer(self) -> str | None:
        """Who stores into the ring, for a consumer that has found it; None where nobody has said so."""
        return self._text(_PRODUCER)

    @producer.setter
    def producer(self, text: str) -> None:
        self._set_text(_PRODUCER, text)

    @property
    def session(self) -> str | None:
        """The session id once the consumer has claimed one."""
        return self._text(_SESSION)

    @session.setter
    def session(self, session_id: str) -> None:
        self._set_text(_SESSION, session_id)

    @property
    def summary(self) -> str | None:
        """The summary's path once the consumer has finished; "" if it could write none."""
        return self._text(_SUMMARY)

    @summary.setter
    def summary(self, path: str) -> None:
        self._set_text(_SUMMARY, path)

    def release(self) -> None:
        """Gives the mapping and the descriptor back."""
        self._words.release()
        self._memory.close()
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def _read(self, number: int) -> RingRecord | None:
        offset = _HEADER_BYTES + number % self.slots * SLOT_BYTES
        slot = self._memory[offset : offset + SLOT_BYTES]
        kind, length, sequence = _PREFIX.unpack_from(slot, _CRC_BYTES)
        if sequence != number + 1 or kind not in _KINDS or length > _MAX_PAYLOAD:
            return None
        body = slot[_CRC_BYTES : _CRC_BYTES + _PREFIX.size + length]
        if zlib.crc32(body) != int.from_bytes(slot[:_CRC_BYTES], "little"):
            return None
        return _KINDS[kind].unpack(body)

    def _set_text(self, place: _Text, text: str) -> None:
        encoded = fit_utf8(text, place.size - 8)
        body = (len(encoded) + 1).to_bytes(4, "little") + encoded
        self._memory[place.offset : place.offset + 4 + len(body)] = (
            zlib.crc32(body).to_bytes(4, "little") + body
        )

    def _text(self, place: _Text) -> str | None:
        held = self._memory[place.offset : place.offset + place.size]
        length = int.from_bytes(held[4:8], "little") - 1
        if not 0 <= length <= place.size - 8:
            return None
        body = held[4 : 8 + length]
        return body[4:].decode() if zlib.crc32(body) == int.from_bytes(held[:4], "little") else None


def _shared_memory(size: int, name: str) -> int:
    """A descriptor of `size` reserved bytes that no path leads to. Raises OSError."""
    try:
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
    except (AttributeError, OSError):  # not Linux, or forbidden
        fd, path = tempfile.mkstemp(prefix="flagscale_perf_")
        os.unlink(path)
    try:
        os.posix_fallocate(fd, 0, size)
    except (AttributeError, OSError):
        os.close(fd)
        raise
    return fd
