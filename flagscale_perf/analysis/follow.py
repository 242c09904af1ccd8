"""A run file read while it is written: what is new since the last look, and the session that comes after
it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from flagscale_perf.analysis.decoder import decode, is_header
from flagscale_perf.analysis.run_file import Fits, RunFile, find_run_file, open_regular, sessions_in
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import MAX_LINE_BYTES
from flagscale_perf.spine.records import Record, RunHeader
from flagscale_perf.spine.session import age_of, file_names

TAIL_BYTES = 4 << 20  # of a longer file only so much of its end is read: some 10 000 records
CHUNK_BYTES = 1 << 20


class Follower:
    """Follows one run file, or, given a directory, always the newest one of the same instrument; also where
    it is removed and begun anew.

    Attributes:
        path: of the file.
        skipped: lines of it that are no records, so far.
        is_joined: it has a second header, at which the reading has ended.
        is_partial: the file was long, so its beginning has not been read.
    """

    def __init__(self, path: Path, session_id: str | None = None, fits: Fits | None = None) -> None:
        """Begins with the newest session that `fits`. Raises PerfError where there is no run."""
        self._directory = path if session_id is None and path.is_dir() else None
        self._file: BinaryIO | None = None
        self._begin(find_run_file(path, session_id, fits))

    def _begin(self, path: Path) -> None:
        self.close()
        self.path = path
        self.skipped = 0
        self.is_joined = False
        self.is_partial = False
        self._run: RunFile | None = None
        self._rest = b""
        self._is_inside_a_line = False  # whose beginning was not kept

    def poll(self) -> Iterator[Record]:
        """Yields new records, each session's header first; goes over to a newer session. Raises PerfError for
        a file that is no run file.
        """
        yield from self._new_records()
        newer = self._newer()
        if newer is not None:
            self._begin(newer)
            yield from self._new_records()

    def has_writer(self) -> bool | None:
        """Whether a process writes the file; None where that cannot be known."""
        try:
            return self._run is None or self._run.is_live()
        except PerfError:
            return False  # it has been removed

    def close(self) -> None:
        """Gives the descriptor back."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _newer(self) -> Path | None:
        """The file to go on with, if it is not the one that is open."""
        if self._is_replaced():
            return self.path
        if self._directory is None:
            return None
        try:
            sessions = sessions_in(self._directory)
        except PerfError:
            return None  # the directory has been removed; what was read is still good
        for session_id in reversed(sessions):
            path = self._directory / file_names(session_id)["records"]
            if age_of(path) <= age_of(self.path):
                break
            if self._is_alike(path):
                return path
        return None

    def _is_alike(self, path: Path) -> bool:
        """Whether the session is of the same instrument: a run may be watched by several at a time."""
        try:
            header = RunFile(path).header
        except PerfError:  # it has none yet, or is damaged
            return False
        return self._run is None or header.instrument == self._run.header.instrument

    def _is_replaced(self) -> bool:
        """Whether the file was replaced: after a removal its writer begins a new one of the same name."""
        try:
            return self._file is not None and not os.path.samestat(
                os.fstat(self._file.fileno()), self.path.stat()
            )
        except OSError:
            return False  # not yet

    def _new_records(self) -> Iterator[Record]:
        if self._run is None:
            header = self._open()
            if header is None:
                return
            yield header
        while self._file is not None and not self.is_joined and (chunk := self._file.read(CHUNK_BYTES)):
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                self.is_joined |= is_header(line)
                if self.is_joined:
                    return
                yield from self._decoded(line)
            if len(self._rest) > MAX_LINE_BYTES:
                self._rest, self._is_inside_a_line = b"", True

    def _open(self) -> RunHeader | None:
        """The header; None of a file that its writer has only just made."""
        file = os.fdopen(open_regular(self.path), "rb", buffering=0)
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes == 0:
            file.close()
            return None
        self._file = file
        self._run = RunFile(self.path)
        if size_bytes > TAIL_BYTES:
            self._file.seek(size_bytes - TAIL_BYTES)
            self.is_partial = self._is_inside_a_line = True
        else:
            self._file.readline()
        return self._run.header

    def _decoded(self, line: bytes) -> Iterator[Record]:
        is_cut, self._is_inside_a_line = self._is_inside_a_line, False
        try:
            record = decode(line)
        except ValueError:
            self.skipped += not is_cut
        else:
            yield record
