"""Removes old sessions: files of our own finished sessions, and nothing else."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from flagscale_perf.spine.files import lock, open_regular
from flagscale_perf.spine.jsonl import read_records, recall
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.spine.session import (
    COLUMNS_PREFIX,
    COLUMNS_SUFFIX,
    age_key,
    file_names,
    intervals_name,
    page_name,
    rotated_name,
    session_of,
)

_COLUMNS = re.compile(rf'"({COLUMNS_PREFIX}[\w.-]+{re.escape(COLUMNS_SUFFIX)})"'.encode())


def prune(directory: Path, keep: int) -> list[str]:
    """Removes the files of all but the newest `keep` sessions, except those in use. Returns the removed
    sessions.

    A session is a regular file with a run file's name whose first line is the header of that very session.
    Only its run file, text log with older parts, table of intervals, summary and the files of columns that
    the run file names are removed, and only where they are regular files. Raises OSError.
    """
    sessions = sorted(filter(None, map(session_of, os.listdir(directory))), key=age_key, reverse=True)
    ours = [session_id for session_id in sessions if _is_ours(directory, session_id)]
    return [session_id for session_id in ours[keep:] if _remove(directory, session_id)]


def _is_ours(directory: Path, session_id: str) -> bool:
    fd = _open_regular(directory / file_names(session_id)["records"])
    if fd is None:
        return False
    with os.fdopen(fd, "rb") as file:
        first = next(read_records(file, recall), None)
    return isinstance(first, RunHeader) and first.session_id == session_id


def _remove(directory: Path, session_id: str) -> bool:
    fd = _open_regular(directory / file_names(session_id)["records"])
    if fd is None:
        return False
    try:
        if not lock(fd):
            return False  # no locks here: it may be in use
        for path in _files_of(directory, session_id):
            if _is_regular(path):
                path.unlink()
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def _files_of(directory: Path, session_id: str) -> Iterator[Path]:
    names = file_names(session_id)
    part = 1
    while _is_regular(path := directory / rotated_name(session_id, part)):
        yield path
        part += 1
    for name in _columns_named_in(directory / names["records"]):
        yield directory / name
    yield directory / intervals_name(session_id)
    yield directory / page_name(session_id)
    yield directory / names["metrics"]
    yield directory / names["summary"]
    yield directory / names["records"]  # last: after an interruption the rest is still found


def _columns_named_in(path: Path) -> set[str]:
    """Finds the names by their bytes, as a run file may be long and no other record has such a text."""
    with path.open("rb") as file:
        return {name.decode() for line in file for name in _COLUMNS.findall(line)}


def _open_regular(path: Path) -> int | None:
    try:
        return open_regular(path, os.O_RDWR | os.O_NOFOLLOW)  # a lock over NFS wants a file open for writing
    except OSError:
        return None


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
