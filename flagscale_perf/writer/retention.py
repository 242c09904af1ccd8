"""Removes old sessions: files of our own finished sessions, and nothing else.

A session of the leading instrument is counted as one, with what others recorded beside it: the profile of a
training goes when that goes, and not before.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from flagscale_perf.spine.files import lock, open_regular
from flagscale_perf.spine.jsonl import read_records, recall
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.spine.session import (
    CACHE,
    COLUMNS_PREFIX,
    COLUMNS_SUFFIX,
    by_age,
    file_names,
    intervals_name,
    page_name,
    ranks_name,
    ranks_parts,
    rotated_name,
    session_of,
)

LEADER = RunHeader.instrument  # the first one, which others record beside
_COLUMNS = re.compile(rf'"({COLUMNS_PREFIX}[\w.-]+{re.escape(COLUMNS_SUFFIX)})"'.encode())


def prune(directory: Path, keep: int) -> list[str]:
    """Removes the files of all but the newest `keep` sessions of the leader, and of as many of each other
    instrument that ran beside none of these, except those in use. Returns the removed sessions.

    A session is a regular file with a run file's name whose first line is the header of that very session.
    Only its run file, text log with older parts, table of intervals, summary, its ranks' blocks, the files of
    columns that the run file names and what readers keep of it are removed, and only where they are regular
    files. Raises OSError.
    """
    sessions = by_age(directory, filter(None, map(session_of, os.listdir(directory))))
    ours = [one for session_id in sessions if (one := _ours(directory, session_id)) is not None]
    leading = [one for one in ours if one.instrument == LEADER]
    beside: dict[str, list[str]] = {}
    first: dict[str, list[str]] = {}
    for one in reversed(ours):
        led_by = None if one.instrument == LEADER else _leader_of(one, leading)
        if led_by is None:
            first.setdefault(one.instrument, []).append(one.session_id)
        else:
            beside.setdefault(led_by, []).append(one.session_id)
    removed = []
    starts = {one.session_id: one.start_ns for one in ours}
    for session_id in (each for alike in first.values() for each in alike[keep:]):
        if _remove(directory, session_id, starts):  # one in use keeps what is beside it
            removed += [each for each in beside.get(session_id, ()) if _remove(directory, each, starts)]
            removed.append(session_id)
    return removed


class _Session(NamedTuple):
    session_id: str
    instrument: str
    start_ns: int
    end_ns: int  # of its file's last change; both are Unix times


def _leader_of(one: _Session, leading: Sequence[_Session]) -> str | None:
    """The leader's session that one of another instrument ran beside: the last one before it that was still
    under way, or the next one that began before its end.
    """
    before = [each for each in leading if each.start_ns <= one.start_ns <= each.end_ns]
    after = [each for each in leading if one.start_ns < each.start_ns <= one.end_ns]
    return before[-1].session_id if before else after[0].session_id if after else None


def _ours(directory: Path, session_id: str) -> _Session | None:
    fd = _open_regular(directory / file_names(session_id)["records"])
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        first, end_ns = next(read_records(file, recall), None), os.fstat(fd).st_mtime_ns
    if not isinstance(first, RunHeader) or first.session_id != session_id:
        return None
    if type(first.start_wall_ns) is not int:
        return None
    return _Session(session_id, first.instrument, first.start_wall_ns, end_ns)


def _remove(directory: Path, session_id: str, starts: Mapping[str, int]) -> bool:
    fd = _open_regular(directory / file_names(session_id)["records"])
    if fd is None:
        return False
    try:
        if not lock(fd):
            return False  # no locks here: it may be in use
        for path in _files_of(directory, session_id, starts[session_id]):
            if _is_regular(path):
                path.unlink()
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def _files_of(directory: Path, session_id: str, start_ns: int) -> Iterator[Path]:
    names = file_names(session_id)
    part = 1
    while _is_regular(path := directory / rotated_name(session_id, part)):
        yield path
        part += 1
    for name in _columns_named_in(directory / names["records"]):
        yield directory / name
    for part in ranks_parts(directory, start_ns):
        yield directory / ranks_name(start_ns, part)
    yield from _kept_of(directory / CACHE, session_id, start_ns)
    # The run file is the last: after an interruption the rest is still found.
    others = intervals_name(session_id), page_name(session_id), names["metrics"], names["summary"]
    yield from (directory / name for name in (*others, names["records"]))


def _kept_of(cache: Path, session_id: str, start_ns: int) -> Iterator[Path]:
    """What readers have made of the session's files; no link is followed."""
    records = re.escape(file_names(session_id)["records"])
    made_of = rf"(?:{session_id}|perf_ranks_{start_ns}\.\d+)"
    ours = re.compile(rf"part={made_of}-[\w-]+\.parquet|{session_id}\.json|{records}\..+", re.ASCII)
    for place, _, names in os.walk(cache) if not cache.is_symlink() else ():
        yield from (Path(place, name) for name in names if ours.fullmatch(name))


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
