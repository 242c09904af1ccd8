"""Lines of JSON with their checksum, beside a run file: the good ones of damaged files, and what was lost."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

from flagscale_perf.spine import files

MAX_LINE_BYTES = 16 << 20
_END = re.compile(rb',"crc32":"([0-9a-f]{8})"}\n\Z')
_LENGTH = len(b',"crc32":"01234567"}\n')


class CheckedLines:
    """The lines of some files, one after another, in the memory of one of them.

    Attributes:
        damaged: lines that are not what was written, so far.
        cut_bytes: of the last file, behind its last whole line: cut off, or still being written.
        troubles: files that could not be read, and why.
    """

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self.damaged = self.cut_bytes = 0
        self.troubles: list[str] = []

    def __iter__(self) -> Iterator[dict[str, Any] | None]:
        """The content of each; None where another writer has gone on with the file."""
        self.damaged = self.cut_bytes = 0
        self.troubles = []
        for path in self._paths:
            self.damaged += bool(self.cut_bytes)  # a part before the last one was written whole
            self.cut_bytes = 0
            try:
                with os.fdopen(files.open_regular(path), "rb") as file:
                    yield from self._lines(file)
            except OSError as error:
                self.troubles.append(f"{path.name}: {error.strerror or 'not a regular file'}")

    def _lines(self, file: BinaryIO) -> Iterator[dict[str, Any] | None]:
        while line := file.readline(MAX_LINE_BYTES):
            if line == b"\n":
                yield None
            elif not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES:
                self.cut_bytes = len(line)
            elif (content := _content(line)) is not None:
                yield content
            else:
                self.damaged += 1
                while not line.endswith(b"\n") and (line := file.readline(MAX_LINE_BYTES)):
                    pass


def _content(line: bytes) -> dict[str, Any] | None:
    """None for anything but an object whose checksum is right."""
    end = _END.match(line, max(0, len(line) - _LENGTH))
    if end is None or crc32(memoryview(line)[: end.start()]) != int(end[1], 16):
        return None
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
