"""Every rank's blocks as they were sent, in files beside the run file, which has them folded.

    perf_ranks_<start of the session, Unix ns>.<part>.jsonl

A line for what one node has sent at a time: {"kept_wall_ns": .., "node": .., "blocks": [..], "crc32": ".."}.
The checksum is of all bytes before `,"crc32"`. Blocks are not encoded anew: 10,000 ranks send 400 kB a
step. An empty line is where another writer goes on, which may have read again what the one before it had.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from zlib import crc32

from flagscale_perf.spine.files import AppendFile, open_shared
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.session import ranks_name, ranks_parts
from flagscale_perf.training.rank_records import MAX_ENTRIES
from flagscale_perf.training.ranks.blocks import Block
from flagscale_perf.training.ranks.kind import RankItem, encode_item

USUAL_GB = 4
BYTES_PER_GB = 10**9
PARTS = 8  # of which the oldest goes for a new one
AT_ONCE_BYTES = 1 << 20
MAX_WAITING_BYTES = 16 << 20  # while the disk takes nothing


def kept_bytes(asked_gb: int | None, ranks: int) -> int:
    """What the files may take; `asked_gb`: the option. Without it `USUAL_GB` for a job whose records fold its
    ranks, and nothing where each rank has an entry in them anyway.
    """
    usual_gb = USUAL_GB if ranks > MAX_ENTRIES else 0
    return BYTES_PER_GB * (usual_gb if asked_gb is None else asked_gb)


class KeptBlocks:
    """The files of a session. No method raises: what the disk refuses is counted."""

    def __init__(self, directory: Path, start_wall_ns: int, max_bytes: int) -> None:
        """`start_wall_ns`: of the session; `max_bytes`: of all files, 0 for none."""
        self._directory, self._start_wall_ns, self._max_bytes = directory, start_wall_ns, max_bytes
        self._file: AppendFile | None = None
        self._part = 0
        self._waiting = self._lost = 0  # blocks
        self._is_full = self._is_failing = self._has_removed = False
        self._trouble = ""
        self._notes: list[str] = []

    def add(self, hostname: str, lines: Sequence[bytes]) -> None:
        """Blocks of a node, as they were sent."""
        if not self._max_bytes or not lines:
            return
        self._file = self._file or self._opened()
        if self._file.waiting_bytes > MAX_WAITING_BYTES or self._is_full:
            self._lost += len(lines)
            return
        self._waiting += len(lines)
        begin = f'{{"kept_wall_ns":{time.time_ns()},"node":{dump(hostname)},"blocks":['
        body = b"%b%b]" % (begin.encode(), b",".join(lines))
        self._file.write(b'%b,"crc32":"%08x"}\n' % (body, crc32(body)))
        if self._file.waiting_bytes > AT_ONCE_BYTES and not self._is_failing:
            self._bring(self._file)

    def add_items(self, items: Iterable[RankItem]) -> None:
        """What came from this machine's own processes."""
        if self._max_bytes:
            blocks = [item for item in items if isinstance(item, Block)]
            self.add(os.uname().nodename, [dump(encode_item(block)).encode() for block in blocks])

    def flush(self) -> list[str]:
        """Brings them to the file; what there is to say about it."""
        if self._file is not None:
            self._bring(self._file)
        notes, self._notes = self._notes, []
        return notes

    def close(self) -> list[str]:
        """The same at the end, and what has been lost."""
        notes = self.flush()
        if self._file is None:
            return notes
        with contextlib.suppress(OSError):
            self._file.close()
        lost, self._waiting, self._lost = self._lost + self._waiting, 0, 0
        return [*notes, *([f"{lost:,} blocks of ranks were not kept: {self._trouble}"] if lost else [])]

    def _bring(self, file: AppendFile) -> None:
        try:
            if self._waiting:
                file.flush()
                self._waiting = 0
                self._is_full = file.size() >= self._max_bytes // PARTS
            if self._is_full:
                self._next_part(file)
            self._is_failing = False
        except OSError as error:
            self._fails(error)

    def _opened(self) -> AppendFile:
        """The newest part: of an earlier writer of the session, which may have died within a line, or new."""
        with contextlib.suppress(OSError):
            self._part = max([self._part, *ranks_parts(self._directory, self._start_wall_ns)])
        return self._file_of(self._part)

    def _file_of(self, part: int) -> AppendFile:
        path = self._directory / ranks_name(self._start_wall_ns, part)
        return AppendFile(path, open_shared, lambda fresh: b"" if fresh else b"\n", is_bounded=False)

    def _next_part(self, full: AppendFile) -> None:
        """Raises OSError where the oldest part cannot be removed: nothing more is kept until it can."""
        for part in ranks_parts(self._directory, self._start_wall_ns)[: 1 - PARTS]:
            os.unlink(self._directory / ranks_name(self._start_wall_ns, part))
            if not self._has_removed:
                self._has_removed = True
                self._notes.append(
                    f"every rank's blocks take {self._max_bytes / BYTES_PER_GB:g} GB: from here on the oldest"
                    " go for new ones (--perf-ranks-gb keeps more)"
                )
        full.close()
        self._part += 1
        self._file, self._is_full = self._file_of(self._part), False

    def _fails(self, error: OSError) -> None:
        self._is_failing = True
        text = f"{type(error).__name__}: {error.strerror or error}"
        if text != self._trouble:
            self._trouble = text
            self._notes.append(f"every rank's blocks cannot be written: {text}; retrying")
