"""A session read while it is written: what is new since the last look on all machines of its job, and the
session that comes after it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from flagscale_perf.analysis.clocks import Clocks, clock_of
from flagscale_perf.analysis.job import Fits, Job
from flagscale_perf.analysis.session import moved
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import MAX_LINE_BYTES
from flagscale_perf.spine.records import Record, RunEnd, RunHeader
from flagscale_perf.spine.session import age_of
from flagscale_perf.store.decoder import decode, is_header
from flagscale_perf.store.run_file import RunFile, open_regular

TAIL_BYTES = 4 << 20  # of a longer file only so much of its end is read: some 10 000 records
CHUNK_BYTES = 1 << 20
PROCESSES = 1 << 20  # more than a file has: numbers of another file's begin behind them


class Follower:
    """Follows a session, or, given a directory, always the newest one of the same instrument; also where a
    file is removed and begun anew.
    """

    def __init__(self, path: Path, session_id: str | None = None, fits: Fits | None = None) -> None:
        """Begins with the newest session that `fits`. Raises PerfError where there is no run."""
        self._asked, self._fits = (path, session_id), fits
        self._stays = session_id is not None or not path.is_dir()
        self._files: list[_Tail] = []
        job = Job(path, session_id)
        self._begin(job, job.chosen(fits).path)

    @property
    def path(self) -> Path:
        """Of the first file."""
        return self._files[0].path

    @property
    def header(self) -> RunHeader | None:
        """Of the first file; None before it is there."""
        return self._files[0].header

    @property
    def skipped(self) -> int:
        """Lines that are no records, so far."""
        return sum(file.skipped for file in self._files)

    @property
    def is_joined(self) -> bool:
        """Whether a file has a second header, at which its reading has ended."""
        return any(file.is_joined for file in self._files)

    @property
    def is_partial(self) -> bool:
        """Whether a file was long, so its beginning has not been read."""
        return any(file.is_partial for file in self._files)

    def poll(self) -> Iterator[Record]:
        """Yields new records, each session's header first; goes over to a newer session. Of several machines
        the records of each stand behind its header. Raises PerfError for a file that is no run file.
        """
        yield from self._new_records()
        if self._look_again():
            yield from self._new_records()

    def has_writer(self) -> bool | None:
        """Whether a process writes each file that has no end; None where that cannot be known."""
        found = {file.has_writer() for file in self._files if not file.has_end} or {False}
        return False if False in found else True if True in found else None

    def close(self) -> None:
        """Gives the descriptors back."""
        for file in self._files:
            file.close()

    def _begin(self, job: Job, path: Path) -> None:
        self.close()
        self._files = [_Tail(path)]
        self._join(job)

    def _join(self, job: Job) -> bool:
        """Follows the other machines of the job, too, as soon as they are there."""
        known = {file.path for file in self._files}
        if known.issuperset(job.near(self.path)):
            return False
        found = [path for path in job.mates_of(self.path) if path not in known]
        self._files += map(_Tail, found)
        return bool(found)

    def _look_again(self) -> bool:
        """Whether there are other files now."""
        try:
            return self._has_others()
        except PerfError:
            return False  # files or the directory are being removed; what was read is still good

    def _has_others(self) -> bool:
        job, own = Job(*self._asked), self.header
        # It stays with its instrument: several may record one run.
        newest = job.chosen(self._fits if own is None else lambda other: other.instrument == own.instrument)
        is_other = newest.run is not None and all(newest.path != file.path for file in self._files)
        is_newer = is_other and not self._stays and newest.age > age_of(self.path, own)
        if is_newer and newest.path not in job.mates_of(self.path):
            self._begin(job, newest.path)
            return True
        return self._join(job)

    def _new_records(self) -> Iterator[Record]:
        """Headers first, so that it is known of how many machines the others are."""
        for file in self._files:
            if (header := file.begin()) is not None:
                yield header
        if self.header is None:
            return
        clocks = Clocks([file.header for file in self._files if file.header])  # messages are seen too late
        for place, file in enumerate(self._files):
            records = file.poll()
            if len(self._files) == 1:
                yield from records
            elif file.header is not None:
                move = clocks.mover(clock_of(file.header))
                yield file.header
                yield from (moved(record, place * PROCESSES, move) for record in records)


class _Tail:
    """One file that grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self._clear()

    def _clear(self) -> None:
        self.close()
        self.skipped = 0
        self.is_joined = self.is_partial = self.has_end = False
        self.header: RunHeader | None = None
        self._run: RunFile | None = None
        self._rest = b""
        self._is_inside_a_line = False  # whose beginning was not kept

    def begin(self) -> RunHeader | None:
        """The header of a file that was not open; None of one that is, or that its writer has only just made.
        Raises PerfError for a file that is no run file.
        """
        if self._is_replaced():
            self._clear()
        if self._file is not None or not self.path.exists():
            return None
        file = os.fdopen(open_regular(self.path), "rb", buffering=0)
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes == 0:
            file.close()
            return None
        self._file = file
        self._run = RunFile(self.path)
        if size_bytes > TAIL_BYTES:
            file.seek(size_bytes - TAIL_BYTES)
            self.is_partial = self._is_inside_a_line = True
        else:
            file.readline()
        self.header = self._run.header
        return self.header

    def poll(self) -> Iterator[Record]:
        """New records of an open file."""
        while self._file is not None and not self.is_joined and (chunk := self._file.read(CHUNK_BYTES)):
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                self.is_joined |= is_header(line)
                if self.is_joined:
                    return
                yield from self._decoded(line)
            if len(self._rest) > MAX_LINE_BYTES:
                self._rest, self._is_inside_a_line = b"", True

    def has_writer(self) -> bool | None:
        """Whether a process writes it; None where that cannot be known."""
        try:
            return self._run is None or self._run.is_live()
        except PerfError:
            return False  # it has been removed

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _is_replaced(self) -> bool:
        """Whether the file was replaced: after a removal its writer begins a new one of the same name, and on
        a full disk it puts the end of the run in the place of the last records.
        """
        try:
            if self._file is None:
                return False
            found = os.fstat(self._file.fileno())
            return not os.path.samestat(found, self.path.stat()) or found.st_size < self._file.tell()
        except OSError:
            return False  # not yet

    def _decoded(self, line: bytes) -> Iterator[Record]:
        is_cut, self._is_inside_a_line = self._is_inside_a_line, False
        try:
            record = decode(line)
        except ValueError:
            self.skipped += not is_cut
        else:
            self.has_end |= isinstance(record, RunEnd)
            yield record
