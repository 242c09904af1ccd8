"""Run files found and read: the good lines of a damaged file, and what was wrong with the others."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from flagscale_perf.analysis.decoder import Block, Chunk, Joined, blocks_of, read_chunks
from flagscale_perf.analysis.evidence import is_written, last_record_ns
from flagscale_perf.analysis.strangers import FOREIGN, GIVE, NO_RUN_FILE, about_file, no_run_in
from flagscale_perf.spine import files
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import BadLine
from flagscale_perf.spine.records import Record, RunHeader
from flagscale_perf.spine.session import REALTIME_FILE, by_age, file_names, session_of, session_shown_by

MAX_BAD_LINES = 20
JOINED = "files were joined, or one doubled; not read from there on"
RUN_FILES = "perf_records_*.jsonl"


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


Fits = Callable[[RunHeader], bool]


def find_run_file(path: Path, session_id: str | None = None, fits: Fits | None = None) -> Path:
    """The run file meant by a file's or a directory's path: of a directory the newest session (the newest one
    that `fits`, if any does), or the one asked for; of another file of a session the run file beside it.

    Raises PerfError naming what is there instead.
    """
    if not path.exists():
        raise PerfError(f"{str(path)!r} does not exist; {GIVE} or a perf_records_*.jsonl in it")
    if not path.is_dir():
        return _of_session(_beside(path), session_id)
    sessions = sessions_in(path)
    if session_id is not None and session_id not in sessions:
        raise PerfError(f"no session {session_id!r} in {str(path)!r}; there are {', '.join(sessions[-10:])}")
    return path / file_names(session_id or _newest(path, sessions, fits))["records"]


def _newest(directory: Path, sessions: list[str], fits: Fits | None) -> str:
    unread: list[str] = []
    for session_id in reversed(sessions):
        try:
            header = RunFile(directory / file_names(session_id)["records"]).header
        except PerfError:  # damaged, or its header is not written yet: of these only the last change is known
            unread.append(session_id)
            continue
        if fits is None:
            return next((each for each in unread if each > session_id), session_id)  # newer by its name, too
        if fits(header):
            return session_id
    return sessions[-1]


def _beside(path: Path) -> Path:
    """The run file of a session of which this is any file."""
    if path.name == REALTIME_FILE:
        return find_run_file(path.parent)
    if path.name.startswith("events.out.tfevents"):
        raise PerfError(f"{str(path)!r} has TensorBoard's curves; {GIVE}")
    shown = session_shown_by(path.name)
    if shown is None:
        return path
    records = path.with_name(file_names(shown)["records"])
    if not records.exists():
        raise PerfError(
            f"{str(path)!r} is made of the run file {records.name}, which is not beside it; {GIVE}. {FOREIGN}"
        )
    return records


def _of_session(path: Path, session_id: str | None) -> Path:
    found = session_of(path.name)
    if session_id is not None and found is not None and session_id != found:
        raise PerfError(f"{str(path)!r} is of session {found}; leave --session out, or give its directory")
    return path


def check_instrument(path: Path, header: RunHeader, name: str, instead: str) -> None:
    """Raises PerfError for a run file of another instrument than `name`. `instead`: what to do about it."""
    if header.instrument != name:
        raise PerfError(
            f"{str(path)!r} was recorded by the instrument {header.instrument!r}, not by {name!r}; {instead}"
        )


def sessions_in(directory: Path) -> list[str]:
    """The ids of a directory's sessions, oldest first; at least one. Raises PerfError."""
    try:
        names = os.listdir(directory)
    except OSError as error:
        raise PerfError(
            f"cannot read {str(directory)!r}: {error.strerror}; give the directory of --perf-log-dir"
        ) from None
    sessions = by_age(directory, filter(None, map(session_of, names)))
    if not sessions:
        raise no_run_in(directory, names)
    return sessions


def mates_of(path: Path) -> list[Path]:
    """Run files of the same job and the same time as this one: a job has one for each machine or container.

    They lie in the same directory or in one right below it, into which another machine's files were copied.
    """
    own = RunFile(path).header
    if "job" not in own.facts:
        return []
    ended_ns, headers, found = _ended_ns(path), [own], []
    for other in [*sorted(path.parent.glob(RUN_FILES)), *sorted(path.parent.glob(f"*/{RUN_FILES}"))]:
        try:
            header = RunFile(other).header
        except PerfError:
            continue
        if header in headers or not _is_mate(own, header):  # the file itself, or a copy of one
            continue
        if header.start_wall_ns <= ended_ns and own.start_wall_ns <= _ended_ns(other):
            headers.append(header)
            found.append(other)
    return found


def _is_mate(own: RunHeader, other: RunHeader) -> bool:
    """Whether both are of one instrument and one job; runs in one directory that name no job are one job."""
    return own.instrument == other.instrument and own.facts["job"] == other.facts.get("job", own)


def _ended_ns(path: Path) -> int:
    """Unix time of the last record; the present while the file is still being written."""
    file = RunFile(path)
    return time.time_ns() if file.is_live() else file.last_record_ns()


class RunFile:
    """One run file, read from front to back in constant memory.

    Attributes:
        path: of the file.
        header: its first record.
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
        found = next(self._chunks(), None)
        if found is None:
            raise PerfError(f"{path}:1: the file is empty; {NO_RUN_FILE}, or its run has only just begun")
        if not isinstance(found, Chunk):
            raise PerfError(about_file(path, found.reason if isinstance(found, BadLine) else "no header"))
        first = next(found.records())
        if not isinstance(first, RunHeader):
            raise PerfError(f"{path}:1: a run file begins with its header, this one with another record")
        self.header: RunHeader = first

    def __iter__(self) -> Iterator[Record]:
        """Every record, the header first. Raises PerfError if the file cannot be read."""
        for chunk in self.chunks():
            yield from chunk.records()

    def chunks(self) -> Iterator[Chunk]:
        """The same, many at a time."""
        self.bad_lines, self.skipped, self.joined = [], 0, ""
        for chunk in self._chunks():
            if isinstance(chunk, Joined):
                self.joined = f"a second header at line {chunk.number:,}: {JOINED}"
            elif isinstance(chunk, BadLine):
                self.skipped += 1
                if len(self.bad_lines) < MAX_BAD_LINES:
                    self.bad_lines.append(chunk)
            else:
                yield chunk

    def blocks(self) -> Iterator[Block]:
        """The same, records of one type that follow each other together."""
        for chunk in self.chunks():
            yield from blocks_of(chunk)

    def is_live(self) -> bool | None:
        """Whether a writer still has the file; None where that cannot be known. Raises PerfError."""
        with _readable(self.path):
            return is_written(self.path, self.header)

    def last_record_ns(self) -> int:
        """Unix time of the last record. Raises PerfError."""
        with _readable(self.path):
            return last_record_ns(self.path, self.header)

    def _chunks(self) -> Iterator[Chunk | BadLine | Joined]:
        with _readable(self.path), os.fdopen(files.open_regular(self.path), "rb") as file:
            yield from read_chunks(file)


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
