"""Reading files that grow."""

from __future__ import annotations

import os
from typing import IO

from flagscale_perf.spine import files
from flagscale_perf.spine.units import printable

_CHUNK_BYTES = 1 << 20
_LONGEST_LINE_BYTES = 1 << 16


def open_regular(path: str) -> IO[bytes] | None:
    """Opens a regular file for reading; None for anything else, such as a pipe, which could block."""
    try:
        return os.fdopen(files.open_regular(path), "rb")
    except OSError:
        return None


def last_lines(path: str, count: int) -> list[str]:
    """The last whole or unfinished lines, printable; looks at the last 64 KiB only. [] without the file."""
    file = open_regular(path)
    if file is None:
        return []
    with file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _LONGEST_LINE_BYTES))
        text = file.read(_LONGEST_LINE_BYTES).decode(errors="replace")
    return [printable(line) for line in text.splitlines()[-count:]]


def size_of(path: str) -> int:
    """Bytes in the file; 0 without it."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


class Tail:
    """New lines of a file that another process writes; it may appear late, be emptied, or hold anything."""

    def __init__(self, path: str, start: int) -> None:
        """Skips the first `start` bytes: what stood there before the job began."""
        self._path = path
        self._at = start
        self._rest = b""

    def lines(self) -> list[str]:
        """Whole lines since the last call, printable. Reads at most 1 MiB; the next call goes on there."""
        file = open_regular(self._path)
        if file is None:
            return []
        with file:
            if os.fstat(file.fileno()).st_size < self._at:
                self._at, self._rest = 0, b""
            file.seek(self._at)
            chunk = file.read(_CHUNK_BYTES)
        self._at += len(chunk)
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        self._rest = self._rest[-_LONGEST_LINE_BYTES:]
        return [printable(line.decode(errors="replace")) for line in whole]
