"""A session that is just starting and has nothing to read yet."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from flagscale_perf.analysis.run_file import RunFile, find_run_file
from flagscale_perf.analysis.runs import runs_below
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.records import TYPES
from flagscale_perf.spine.session import session_of

WAIT_S = 10.0
PERIOD_S = 0.2
FRESH_S = 60.0  # a directory or an empty file that is younger may be a session's that begins


def is_without_run(path: Path) -> bool:
    """Whether it is a directory in which a first session may yet begin, there or not."""
    if not path.exists():
        return path.parent.is_dir() and not path.suffix
    return path.is_dir() and not _has_session(path) and not runs_below(path)


def wait_for_start(path: Path, session_id: str | None, say: Callable[[str], None]) -> None:
    """Returns once there is something to read: at once, unless a session is evidently starting. Then it says
    so, and waits for its first iteration, for `WAIT_S` at most.
    """
    end_s = time.monotonic() + WAIT_S
    is_first = True
    while (what := _awaited(path, session_id)) and time.monotonic() < end_s:
        if is_first:
            say(f"{what}: waiting for its first iteration, {WAIT_S:g} s at most")
        is_first = False
        time.sleep(PERIOD_S)


def _awaited(path: Path, session_id: str | None) -> str | None:
    if path.is_dir() and is_without_run(path):
        return f"{str(path)!r} is new and has no run yet" if _is_fresh(path) else None
    try:
        file = find_run_file(path, session_id)
        if file.is_file() and file.stat().st_size == 0:
            return f"{str(file)!r} is new and empty" if _is_fresh(file) else None
        run = RunFile(file)
        has_begun = any(TYPES[type(record)].duration is not None for record in run)
        return (
            f"session {run.header.session_id} is just starting" if not has_begun and run.is_live() else None
        )
    except (PerfError, OSError):
        return None  # the next one to read it says why


def _is_fresh(path: Path) -> bool:
    return time.time() - path.stat().st_mtime < FRESH_S


def _has_session(directory: Path) -> bool:
    try:
        return any(map(session_of, os.listdir(directory)))
    except OSError:
        return True  # the next one to read it says why it cannot be read
