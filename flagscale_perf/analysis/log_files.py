"""Logs of any program in whatever shape they lie: a file, its rotated parts, compressed, a directory."""

from __future__ import annotations

import codecs
import gzip
import itertools
import os
import re
import zlib
from collections.abc import Callable, Container, Iterator, Sequence
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import NamedTuple

from flagscale_perf.spine import files
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.store.run_file import open_regular

CHUNK_BYTES = 1 << 20
HEAD_LINES = 16
_GZIP = b"\x1f\x8b"
MAX_FILES = 10_000
_ROTATED = re.compile(r"(.*?)(?:\.(\d{1,4}))?(?:\.gz)?", re.DOTALL)
_NAMES = re.compile(r"\.(?:log|txt|out|err)(?:\.\d{1,4})?(?:\.gz)?\Z")


class LogSigns(NamedTuple):
    """By what a log that an instrument reads is known.

    Attributes:
        title: what stands in its first lines; "" for none.
        marks: what stands in its lines, among anybody's.
    """

    title: str = ""
    marks: Sequence[str] = ()


def log_files(path: Path) -> list[Path]:
    """The logs meant by a path: a file, or those of a directory and below it, of a rotated log the oldest
    part first. Raises PerfError where there is none.
    """
    if not path.exists():
        raise PerfError(f"{str(path)!r} does not exist; give a log, or a directory of logs")
    if not path.is_dir():
        return [path]
    found = []
    for below, directories, names in os.walk(path):
        directories.sort()
        found += [Path(below) / name for name in names if _NAMES.search(name)]
        if len(found) > MAX_FILES:
            raise PerfError(f"{str(path)!r} has more than {MAX_FILES} logs; give one of its directories")
    if not found:
        raise PerfError(f"no log (.log, .txt, .out, .err, or one of these with .gz) in {str(path)!r}")
    return sorted(found, key=_age)


def older_parts(path: Path) -> list[Path]:
    """Rotated parts of this log beside it, the oldest first."""
    if not path.parent.is_dir():
        return []
    parts = [each for each in path.parent.glob(f"{_escaped(path.name)}.*") if _is_part(each, path.name)]
    return sorted(parts, key=_age)


def _escaped(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


def _is_part(path: Path, name: str) -> bool:
    match = _ROTATED.fullmatch(path.name)
    return match is not None and match[1] == name and match[2] is not None


def _age(path: Path) -> tuple[str, str, int]:
    match = _ROTATED.fullmatch(path.name)
    assert match is not None  # it matches everything
    return str(path.parent), match[1], -int(match[2] or 0)


class LogChunks:
    """The text of one log in UTF-8, some whole lines at a time, in constant memory.

    Attributes:
        path: of the file.
        trouble: why it, or its end, could not be read; empty where it could.
    """

    def __init__(self, path: Path, file: BufferedReader | None = None, trouble: str = "") -> None:
        """`file`: where it is open; it is taken over. With a `trouble` nothing is read."""
        self.path = path
        self.trouble = trouble
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        """Raises PerfError for a file that cannot be read at all."""
        if self.trouble:
            return
        opened, self._file = self._file, None
        with opened or os.fdopen(open_regular(self.path), "rb") as file:
            is_gzip = file.read(2) == _GZIP
            file.seek(0)
            yield from self._chunks(gzip.GzipFile(fileobj=file) if is_gzip else file)

    def _chunks(self, file: gzip.GzipFile | BufferedReader) -> Iterator[bytes]:
        rest, decode = b"", None
        while data := self._read(file):
            if decode is None:
                decode, data = _decoder(data), data.removeprefix(codecs.BOM_UTF8)
            data = decode(data)
            end = data.rfind(b"\n") + 1
            if end:
                yield rest + data[:end]
                rest = data[end:]
            elif len(rest) > CHUNK_BYTES:  # no line of a log: binary, or one without an end
                yield rest + data
                rest = b""
            else:
                rest += data
        if rest:
            yield rest

    def _read(self, file: gzip.GzipFile | BufferedReader) -> bytes:
        """Up to a chunk. `read` would lose all that it has unpacked where a compressed file is cut."""
        try:
            return file.read1(CHUNK_BYTES)
        except (OSError, EOFError, zlib.error) as error:
            self.trouble = str(error) or type(error).__name__
            return b""


def held(logs: Sequence[Path], listed: Container[Path]) -> Iterator[LogChunks]:
    """The logs, one after another. The parts of a rotated log are opened together: once they are, one that is
    moved is neither missed nor read twice.

    Args:
        logs: those of one rotated log side by side, as `log_files` gives them.
        listed: those of them that were found in a directory.

    Raises PerfError for one that was named and cannot be read; one that was found has its `trouble`.
    """
    for _, parts in itertools.groupby(logs, key=lambda path: _age(path)[:2]):
        yield from [_opened(part, part in listed) for part in parts]


def _opened(part: Path, is_listed: bool) -> LogChunks:
    opens = files.open_regular if is_listed else open_regular
    try:
        return LogChunks(part, os.fdopen(opens(part), "rb"))
    except OSError as error:
        return LogChunks(part, trouble=error.strerror or "not a regular file")


def _decoder(begin: bytes) -> Callable[[bytes], bytes]:
    """Makes UTF-8 of what begins so: UTF-16, as PowerShell writes it, is known by its byte order mark."""
    if not begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return bytes
    decode = codecs.getincrementaldecoder("utf-16")("replace").decode
    return lambda data: decode(data).encode("utf-8", "replace")


def lines_of(log: LogChunks) -> Iterator[bytes]:
    """Its lines; one of more than a chunk comes in pieces. Raises PerfError as the log does."""
    for chunk in log:
        yield from BytesIO(chunk)


def has_title(path: Path, title: bytes) -> bool:
    """Whether this stands in the first lines of the text, and it is no run file. Raises PerfError where it
    cannot be read.
    """
    head = b"".join(itertools.islice(lines_of(LogChunks(path)), HEAD_LINES))
    return title in head.replace(b"\0", b"") and not head.startswith(b"{")


def has_mark(path: Path, mark: bytes) -> bool:
    """Whether the text stands anywhere in the log."""
    try:
        chunks = itertools.takewhile(lambda chunk: not chunk.startswith(b'{"kind":"header"'), LogChunks(path))
        return any(mark in chunk for chunk in chunks)  # a run file, which may be long, is no log
    except PerfError:
        return False
