"""Tells whether a file still begins with the bytes that something was made of.

A run file only grows, so its beginning stays as it was; but files are also copied, edited, cut and replaced
by another run's. Where the file's own times do not prove that it is the same, its bytes are read again.
"""

from __future__ import annotations

import errno
import os
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache, reduce
from itertools import compress
from operator import xor
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from flagscale_perf.spine import files

READ_BYTES = 1 << 20
_SAMPLES, _SAMPLE_BYTES = 16, 4096
_UNPROVEN = (0, 0, 0, 0, 0)
_UNREAD = -1


class Reader:
    """A file read from front to back, and the checksum of what was read. The file's times are noted before
    its first byte is read: what changes it meanwhile shows later.

    Attributes:
        size_bytes: so much has been read.
        crc32: of these bytes.
        at_end: called once, before the last few bytes of the file count as read.
    """

    def __init__(self, file: BinaryIO, is_summed: bool = True) -> None:
        """`is_summed`: the checksum is wanted."""
        self._file, self._found, self._is_summed = file, _found(file), is_summed
        self.fileno = file.fileno
        self.size_bytes = self.crc32 = 0
        self.at_end: Callable[[], None] | None = None

    def read(self, size: int) -> bytes:
        """The next bytes, fewer only at the end of the file. Raises OSError."""
        data = self._file.read(size)
        if len(data) < size and self.at_end is not None:
            at_end, self.at_end = self.at_end, None
            at_end()
        if self._is_summed:
            self.crc32 = zlib.crc32(data, self.crc32)
        self.size_bytes += len(data)
        return data

    def skip(self, size: int, crc32: int) -> None:
        """Goes on behind the next bytes, which somebody else has read. `crc32`: of these. Raises OSError."""
        self.size_bytes += size
        self._file.seek(self.size_bytes)
        self.crc32 = joined_crc32(self.crc32, crc32, size)

    def go_on(self, part: Part, begin: int) -> bytes:
        """Goes on behind a part that the file still has; returns the part's bytes from `begin` on, once more.
        Raises OSError, also where another file has taken its place.
        """
        if _samples(self._file, part.size_bytes) != part.samples_crc32:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        self._file.seek(begin)
        self.size_bytes, self.crc32 = part.size_bytes, part.crc32
        return self._file.read(part.size_bytes - begin)

    def part(self) -> Part:
        """What has been read so far. Raises OSError."""
        before = self._file.tell()
        made = Part(self.size_bytes, self.crc32, _samples(self._file, self.size_bytes), self._found)
        self._file.seek(before)
        return made


class Part(NamedTuple):
    """The first bytes of a file. All are integers, so that it can be kept as a list.

    Attributes:
        size_bytes: how many; the file may have had more.
        crc32: of them.
        samples_crc32: of a few blocks of them.
        found: device, inode, size, and times in ns of the file when its reading began; zeros where it was so
            young that the times prove nothing.
    """

    size_bytes: int
    crc32: int
    samples_crc32: int
    found: tuple[int, ...] = _UNPROVEN

    @classmethod
    def whole(cls, path: Path) -> Part:
        """A file as it is now, without its checksum: it is known again only while its times stay. Raises
        OSError.
        """
        with os.fdopen(files.open_regular(path), "rb") as file:
            return cls(os.fstat(file.fileno()).st_size, _UNREAD, _UNREAD, _found(file))

    @classmethod
    def of(cls, kept: Sequence[Any]) -> Part:
        """A part that was kept as a list."""
        size_bytes, crc32, samples_crc32, found = kept
        return cls(size_bytes, crc32, samples_crc32, tuple(found))

    def still(self, path: Path) -> Part | None:
        """This part, with the file's times of now; None where the file does not begin with it or is gone. The
        bytes are read again where the times do not prove them; only samples of them while a writer has the
        file locked, as it only appends.
        """
        try:
            if _found(path) == self.found != _UNPROVEN:
                return self
            with os.fdopen(files.open_regular(path), "rb") as file:
                now = _found(file)
                if self.crc32 == _UNREAD or os.fstat(file.fileno()).st_size < self.size_bytes:
                    return None
                is_same = _samples(file, self.size_bytes) == self.samples_crc32
                if is_same and files.is_locked(file.fileno()) is not True:
                    is_same = _crc32(file, self.size_bytes) == self.crc32
                return self._replace(found=now) if is_same else None
        except OSError:
            return None


def joined_crc32(first: int, second: int, size_bytes: int) -> int:
    """The checksum of bytes and of others behind them: of theirs, and how many the others are."""
    for number in range(size_bytes.bit_length()):
        if size_bytes >> number & 1:
            first = _times(_shifts(number), first)
    return first ^ second


@cache
def _shifts(number: int) -> Sequence[int]:
    """What 2 ** `number` zero bytes make of each bit of the checksum before them: that map is linear."""
    if number:
        half = _shifts(number - 1)
        return [_times(half, each) for each in half]
    none = zlib.crc32(b"\0")
    return [zlib.crc32(b"\0", 1 << bit) ^ none for bit in range(32)]


def _times(columns: Sequence[int], bits: int) -> int:
    return reduce(xor, compress(columns, map(int, reversed(f"{bits:032b}"))), 0)


def whole_parts(paths: Iterable[Path]) -> list[Part]:
    """Files as they are now; none where not all can be read."""
    try:
        return [*map(Part.whole, paths)]
    except OSError:
        return []


def _found(file: BinaryIO | Path) -> tuple[int, ...]:
    found = os.stat(file) if isinstance(file, Path) else os.fstat(file.fileno())
    changed_ns = max(found.st_mtime_ns, found.st_ctime_ns)  # the latter cannot be set back
    if not changed_ns < time.time_ns() - files.TICK_NS:
        return _UNPROVEN
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _samples(file: BinaryIO, size_bytes: int) -> int:
    crc32, last = 0, max(0, size_bytes - _SAMPLE_BYTES)
    for number in range(_SAMPLES):
        file.seek(last * number // (_SAMPLES - 1))
        crc32 = zlib.crc32(file.read(min(_SAMPLE_BYTES, size_bytes)), crc32)
    return crc32


def _crc32(file: BinaryIO, size_bytes: int) -> int:
    crc32, left = 0, size_bytes
    file.seek(0)
    while left and (data := file.read(min(READ_BYTES, left))):
        crc32, left = zlib.crc32(data, crc32), left - len(data)
    return crc32 if not left else _UNREAD
