"""A request for a profile of what a server does next: a file in the directory that its workers look into.

Who asks holds the file locked for as long as the profile is wanted, and each worker holds a file beside it:
so one request stands at a time, it ends with its maker, and whether a server is there is known.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import NOFOLLOW, is_locked, lock, open_regular, open_shared
from flagscale_perf.spine.jsonl import dump

REQUEST_FILE, PRESENCE_FILE = "perf_profile_now.json", "perf_profile_server.lock"
MOST_SECONDS = 60.0
FORGOTTEN_S = 120.0  # where the file system has no locks: from then on its maker is gone
_MAX_BYTES = 1024
_TRIES, _TRY_S = 3, 0.1  # a worker that looks has the file locked for a moment


class Request(NamedTuple):
    """What is asked for.

    Attributes:
        name: of the request, no other has it.
        begin_unix_s: from then on, so that all workers begin with the same step or the next one.
        seconds: at most, from the first step on.
        requests: after so many have been answered; None: whatever their number.
        steps: after so many profiled ones; None: whatever their number.
    """

    name: str
    begin_unix_s: float
    seconds: float
    requests: int | None = None
    steps: int | None = None


def request_in(directory: Path) -> Request | None:
    """The request that stands there; None where there is none, or its maker is gone."""
    try:
        with open(open_regular(directory / REQUEST_FILE, os.O_RDONLY | NOFOLLOW), "rb") as file:
            made = Request(**json.loads(file.read(_MAX_BYTES)))
            is_wanted = is_locked(file.fileno())
        age_s = time.time() - made.begin_unix_s
        has_meaning = 0 < made.seconds <= MOST_SECONDS and isinstance(made.name, str)
        counts = [each for each in (made.requests, made.steps) if each is not None]
        has_meaning &= all(isinstance(each, int) for each in counts)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    stands = age_s < FORGOTTEN_S if is_wanted is None else is_wanted
    return made if has_meaning and stands else None


@contextlib.contextmanager
def requested(directory: Path, request: Request) -> Iterator[None]:
    """Lets the request stand during the block. Raises PerfError where another one does."""
    path = directory / REQUEST_FILE
    try:
        fd = _own(path)
        os.ftruncate(fd, 0)
        os.write(fd, dump(request._asdict()).encode())
    except OSError as error:
        raise PerfError(f"cannot write {str(path)!r}: {error.strerror}") from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(fd)


def _own(path: Path) -> int:
    """The file, locked. Raises PerfError where another request stands, OSError."""
    for _ in range(_TRIES):
        fd = open_shared(path)
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            lock(fd)
            if os.path.samestat(os.fstat(fd), os.stat(path)):  # its last owner has not just removed it
                return fd
        os.close(fd)
        time.sleep(_TRY_S)
    raise PerfError(
        f"{str(path.parent)!r} has a profile that was asked for before and is not written yet; ask again when"
        " that command has ended"
    )


def look_into(directory: Path) -> int:
    """What a worker that looks for requests holds open as long as it does. Raises OSError."""
    fd = open_shared(directory / PRESENCE_FILE)
    while is_locked(fd):  # somebody asks just now
        time.sleep(_TRY_S)
    return fd


def is_looked_into(directory: Path) -> bool | None:
    """Whether a worker looks for requests there; None where that cannot be known: the file system has no
    locks, or the file is another user's.
    """
    try:
        fd = open_regular(directory / PRESENCE_FILE, os.O_RDONLY | NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        return False if lock(fd) else None
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
