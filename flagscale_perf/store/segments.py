"""Long run files decoded by several processors: each process takes every n-th of the file's segments, this
one what depends on order. What another process cannot decode as it is, this one reads line by line.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Generator, Iterator, Sequence
from importlib import import_module
from subprocess import DEVNULL, PIPE
from typing import Any, NamedTuple

from flagscale_perf.spine.jsonl import CHUNK_BYTES, MAX_LINE_BYTES, BadLine, WholeLines
from flagscale_perf.spine.records import KINDS
from flagscale_perf.store.decoder import Chunk, Joined, decoder, read_chunks
from flagscale_perf.store.packed import LENGTH_BYTES, Packer, unpacked
from flagscale_perf.store.part import Reader

MIN_BYTES = 64 << 20  # of what is still to be read: less takes no longer alone
SEGMENT_BYTES = 4 << 20
ALONE_BYTES = 16 << 20  # so much is read meanwhile the others start
MAX_PROCESSES = 4  # more decode no faster than one can take
PIPE_BYTES = 1 << 20
PIECE_BYTES = 128 << 10  # that are decoded at once: their records stay in a processor's cache
_MODULE = __name__
_room = bytearray()

Found = Chunk | BadLine | Joined


class Head(NamedTuple):
    """What a process says of a segment.

    Attributes:
        begin, end: of its first line, and of the next segment's.
        crc32: of the lines.
        chunks: of its records, which follow; none where not every line is a record.
    """

    begin: int
    end: int
    crc32: int
    chunks: int


class Task(NamedTuple):
    """What a process is told.

    Attributes:
        kinds: of records, with the module that registers each.
        first, behind, step: which segments it takes.
        size_bytes: of one.
    """

    kinds: dict[str, str]
    first: int
    behind: int
    step: int
    size_bytes: int


class _Part:
    """So many bytes of what is read, as if they were a file."""

    def __init__(self, reader: Reader, size_bytes: int) -> None:
        self._reader, self._left = reader, size_bytes

    def read(self, size: int) -> bytes:
        size = min(size, self._left)
        data = self._reader.read(size) if size else b""
        self._left -= len(data)
        return data


def in_segments(reader: Reader, number: int, rest: bytes) -> Generator[Found, None, tuple[int, bytes]]:
    """The lines of a long file up to its last ones; hands back how many they are and what has been read of
    the next one. Nothing of a short file, and where there is one processor only.
    """
    processes = min(MAX_PROCESSES, len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else 1
    size_bytes = os.fstat(reader.fileno()).st_size
    if processes < 2 or size_bytes - reader.size_bytes < MIN_BYTES:
        return number, rest
    first, behind = -(-(reader.size_bytes + ALONE_BYTES) // SEGMENT_BYTES), size_bytes // SEGMENT_BYTES
    begin = _line_begin(reader.fileno(), first * SEGMENT_BYTES)
    if begin is None:
        return number, rest
    with contextlib.ExitStack() as stack:
        alone = WholeLines(_Part(reader, begin - reader.size_bytes), number, rest)
        others: list[subprocess.Popen[bytes]] = []
        for count, found in enumerate(read_chunks(alone)):
            if count == 1:  # who looks only at the first records gets them without any other process
                others = _start(stack, reader.fileno(), first, behind, processes)
            yield found
        number = alone.number
        for place in range(first, behind if others else first):
            made = _next(others[(place - first) % len(others)])
            if made is None or made[0].begin != reader.size_bytes:
                break
            head, chunks = made
            if chunks:
                reader.skip(head.end - head.begin, head.crc32)
                number += sum(len(chunk.types) for chunk in chunks)
                yield from chunks
                continue
            lines = WholeLines(_Part(reader, head.end - head.begin), number)
            yield from read_chunks(lines)
            number = lines.number
    return number, b""


def _start(
    stack: contextlib.ExitStack, fd: int, first: int, behind: int, processes: int
) -> list[subprocess.Popen[bytes]]:
    """The other processes, which end with the stack; none where not all can be started."""
    from flagscale_perf.spine import companion  # who reads short files needs none

    kinds = {kind: type_.__module__ for kind, type_ in KINDS.items()}
    made = []
    try:
        for number in range(processes):
            task = json.dumps(Task(kinds, first + number, behind, processes, SEGMENT_BYTES))
            one = companion.start(_MODULE, task, stdin=fd, stdout=PIPE, stderr=DEVNULL)
            stack.callback(_end, one)
            made.append(one)
    except (OSError, subprocess.SubprocessError):
        return []
    return made


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _next(process: subprocess.Popen[bytes]) -> tuple[Head, list[Chunk]] | None:
    """What the process says of its next segment; None where it says nothing more."""
    stdout: Any = process.stdout

    def read(size: int) -> memoryview:
        data = memoryview(bytearray(size))
        got = 0
        while got < size:
            count = stdout.readinto(data[got:])
            if not count:
                raise EOFError
            got += count
        return data

    try:
        head = Head(*json.loads(bytes(read(int.from_bytes(read(LENGTH_BYTES), "big")))))
        return head, [unpacked(read) for _ in range(head.chunks)]
    except EOFError:
        return None


def _line_begin(fd: int, place: int) -> int | None:
    """Where the first line begins at this byte or behind it; None where none does."""
    place -= 1
    while data := os.pread(fd, CHUNK_BYTES, place):
        found = data.find(b"\n")
        if found >= 0:
            return place + found + 1
        place += len(data)
    return None


def main(words: Sequence[str]) -> None:
    """Decodes segments of the file that is its standard input, until nobody wants them any more."""
    import fcntl

    from flagscale_perf.spine import companion

    companion.settle()
    task = Task(*json.loads(words[0]))
    for module in set(task.kinds.values()):
        import_module(module)
    if KINDS.keys() != task.kinds.keys():
        return
    packer = Packer(decoder(), [*map(KINDS.__getitem__, task.kinds)])
    with contextlib.suppress(BrokenPipeError), os.fdopen(1, "wb", buffering=0) as out:
        fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        for place in range(task.first, task.behind, task.step):
            begin, end = (_line_begin(0, (place + more) * task.size_bytes) for more in (0, 1))
            if begin is None or end is None:
                return
            left = memoryview(_said(packer, begin, end, task.size_bytes))
            while left:
                left = left[out.write(left) :]


def _said(packer: Packer, begin: int, end: int, size_bytes: int) -> bytes:
    crc32, content = 0, []
    try:
        if end - begin > size_bytes + MAX_LINE_BYTES:
            raise ValueError("it has a line that is too long")
        data = _read(begin, end)
        with memoryview(data) as view:
            content = [*packer.packed(view[first:last] for first, last in _cuts(data))]
        crc32 = zlib.crc32(data)
    except (ValueError, RecursionError):
        content = []
    head = json.dumps(Head(begin, end, crc32, len(content))).encode()
    return b"".join((len(head).to_bytes(LENGTH_BYTES, "big"), head, *content))


def _read(begin: int, end: int) -> bytearray:
    """These bytes; they stay until the next ones are read."""
    del _room[end - begin :]
    _room.extend(bytes(max(0, end - begin - len(_room))))
    with memoryview(_room) as view:
        place = 0
        while place < len(view) and (count := os.preadv(0, [view[place:]], begin + place)):
            place += count
    if place < end - begin:
        raise ValueError("the file was cut")
    return _room


def _cuts(data: bytearray) -> Iterator[tuple[int, int]]:
    """Where pieces of whole lines begin and end."""
    begin = 0
    while begin < len(data):
        end = data.rfind(b"\n", begin, begin + PIECE_BYTES) + 1 or data.find(b"\n", begin) + 1
        yield begin, end
        begin = end


if __name__ == "__main__":
    main(sys.argv[1:])
