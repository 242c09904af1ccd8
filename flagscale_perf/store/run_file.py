"""A run file read: the good lines of a damaged one, and what was wrong with the others."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from flagscale_perf.spine import files
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import MAX_LINE_BYTES, BadLine, WholeLines, one_by_one
from flagscale_perf.spine.records import TYPES, Record, RunHeader, kind_of
from flagscale_perf.store.decoder import Chunk, Joined, decode, read_chunks
from flagscale_perf.store.evidence import is_written, last_record
from flagscale_perf.store.part import Part, Reader
from flagscale_perf.store.segments import in_segments
from flagscale_perf.store.strangers import NO_RUN_FILE, about_file

MAX_BAD_LINES = 20
_EARLY_BYTES = 1 << 20
JOINED = "files were joined, or one doubled; not read from there on"


@dataclass(frozen=True)
class SkippedLine:
    """A line of the file that is no record, and why not."""

    number: int
    reason: str


@dataclass(frozen=True)
class Reading:
    """What was read, and what could not be.

    Attributes:
        path: the run file.
        records: how many of each kind.
        skipped: lines that are no records.
        first_skipped: the first of them.
        remarks: what else a reader has to know of the file, one line each.
    """

    path: str
    records: dict[str, int]
    skipped: int
    first_skipped: list[SkippedLine]
    remarks: list[str] = field(default_factory=list)


class Position(NamedTuple):
    """Where a reading of a file stands.

    Attributes:
        part: what has been read of it.
        line_begin: byte at which the first line begins that has not been read to its end.
        lines: how many lines are before that.
    """

    part: Part
    line_begin: int
    lines: int


AtEnd = Callable[[Position], None]


class RunFile:
    """One run file, read from front to back in constant memory.

    Attributes:
        path: of the file.
        header: its first record.
        changed_ns: Unix time of its last write before it was opened, by the clock of its file system.
        bad_lines: the first `MAX_BAD_LINES` lines that are no records.
        skipped: how many lines were no records, so far.
        joined: what to say of a second header, at which the reading has ended; empty without one.
    """

    def __init__(self, path: Path) -> None:
        """Reads the header. Raises PerfError for a file that is no run file."""
        self.path = path
        self.bad_lines: list[BadLine] = []
        self.skipped = 0
        self.joined = ""
        with _readable(path):
            found = os.stat(path)
        self.changed_ns = found.st_mtime_ns
        self.header = _header_of(path, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))

    def __iter__(self) -> Iterator[Record]:
        """Every record, the header first. Raises PerfError if the file cannot be read."""
        for chunk in self.chunks():
            yield from chunk.records()

    def chunks(self, begin: Position | None = None, at_end: AtEnd | None = None) -> Iterator[Chunk]:
        """The same, many at a time; those from a position on, if what was noted of bad lines up to there has
        been put back. `at_end` is told the position once, before the last few lines.
        """
        if begin is None:
            self.bad_lines, self.skipped, self.joined = [], 0, ""
        for chunk in _chunks(self.path, begin, at_end):
            if isinstance(chunk, Joined):
                self.joined = f"a second header at line {chunk.number:,}: {JOINED}"
                return
            elif isinstance(chunk, BadLine):
                self.skipped += 1
                if len(self.bad_lines) < MAX_BAD_LINES:
                    self.bad_lines.append(chunk)
            else:
                yield chunk

    def is_live(self) -> bool | None:
        """Whether a writer still has the file; None where that cannot be known. Raises PerfError."""
        with _readable(self.path):
            return is_written(self.path, self.header)

    def last_record_ns(self) -> int:
        """Unix time of the last record. Raises PerfError."""
        with _readable(self.path):
            return last_record(self.path, self.header)[0]

    @cached_property
    def ended_ns(self) -> int:
        """The same, as of the first look: the present while the file is being written, the start where it is
        not there any more.
        """
        try:
            last_ns, is_end = last_record(self.path, self.header)
            return last_ns if is_end or not self.is_live() else time.time_ns()
        except (PerfError, OSError):
            return self.header.start_wall_ns

    def early(self, type_: type[Any]) -> list[Any]:
        """Records of this type near the beginning of the file; no other line is looked into. Raises OSError
        or PerfError where it cannot be read.
        """
        begin = f'{{"kind":"{kind_of(type_)}"'.encode()
        with os.fdopen(files.open_regular(self.path), "rb") as file:
            *whole, _ = file.read(_EARLY_BYTES).split(b"\n")
        found = []
        for line in whole:
            if line.startswith(begin):
                with contextlib.suppress(ValueError):  # who reads the file counts it
                    found.append(decode(line))
        return found

    def has_begun(self) -> bool:
        """Whether something that took a while is recorded, such as an iteration. Raises PerfError."""
        return any(
            _took_a_while(each)
            for one in _chunks(self.path)
            if isinstance(one, Chunk)
            for each in one.columns
        )


def _chunks(
    path: Path, begin: Position | None = None, at_end: AtEnd | None = None
) -> Iterator[Chunk | BadLine | Joined]:
    with _readable(path), os.fdopen(files.open_regular(path), "rb") as file:
        reader = Reader(file, is_summed=at_end is not None)
        rest = reader.go_on(begin.part, begin.line_begin) if begin else b""
        lines = WholeLines(reader, *(yield from in_segments(reader, begin.lines if begin else 0, rest)))
        if at_end is not None:
            reader.at_end = partial(_tell, at_end, reader, lines)
        yield from read_chunks(lines)


def _tell(at_end: AtEnd, reader: Reader, lines: WholeLines) -> None:
    if len(lines.rest) <= MAX_LINE_BYTES:  # else it is within a line too long for a record, which is not kept
        with contextlib.suppress(OSError):
            at_end(Position(reader.part(), reader.size_bytes - len(lines.rest), lines.number))


@lru_cache(maxsize=4096)
def _header_of(path: Path, _file: tuple[int, ...]) -> RunHeader:
    """The header of a file as long as that is not changed. Raises PerfError for what is no run file."""
    with _readable(path), os.fdopen(files.open_regular(path), "rb") as file:
        _, first = next(iter(WholeLines(file)), (0, None))
    if first is None:
        raise PerfError(f"{path}:1: the file is empty; {NO_RUN_FILE}, or its run has only just begun")
    if isinstance(first, bytes):
        first = next(one_by_one(first[: first.index(b"\n") + 1], 0, decode))
    if isinstance(first, BadLine):
        raise PerfError(about_file(path, first.reason))
    if not isinstance(first, RunHeader):
        raise PerfError(f"{path}:1: a run file begins with its header, this one with another record")
    return first


def _took_a_while(record_type: type) -> bool:
    return TYPES[record_type].duration is not None


def open_regular(path: Path) -> int:
    """A descriptor to read the file. Raises PerfError where there is none, and for a pipe, a device or a
    directory, without waiting.
    """
    with _readable(path):
        return files.open_regular(path)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except files.NotRegularError:
        raise PerfError(f"{str(path)!r} is not a regular file; give a perf_records_*.jsonl") from None
    except OSError as error:
        raise PerfError(f"cannot read {str(path)!r}: {error.strerror}") from None
