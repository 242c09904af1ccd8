"""A run file read by the process that goes on with it after the first writer died."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from flagscale_perf.spine.files import open_regular
from flagscale_perf.spine.jsonl import MAX_LINE_BYTES, BadLine, read_records
from flagscale_perf.training.records import Record


def replay(path: Path) -> Iterator[Record]:
    """Every record in the file; a last line without an end is cut off. Raises OSError."""
    fd = open_regular(path, os.O_RDWR | os.O_NOFOLLOW)
    with os.fdopen(fd, "rb") as file:
        for record in read_records(file):
            if not isinstance(record, BadLine):
                yield record
            elif record.torn:
                _cut_torn_line(fd)


def _cut_torn_line(fd: int) -> None:
    size = os.fstat(fd).st_size
    start = max(0, size - MAX_LINE_BYTES)
    end = os.pread(fd, size - start, start).rfind(b"\n") + 1
    os.ftruncate(fd, start + end)
