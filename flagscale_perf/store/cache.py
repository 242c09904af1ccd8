"""Files that were made of run files and can be made again: in `cache/` beside these, or, where that cannot be
written, in the user's own cache. They can be deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Collection, Iterator
from functools import cache as once
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from flagscale_perf.spine import files
from flagscale_perf.spine.records import KINDS
from flagscale_perf.spine.session import CACHE

IS_ON = hasattr(os, "geteuid")  # Windows has no owners, and opens nothing relative to a directory
MAX_BYTES = 256 << 20  # a longer file is none of ours
_LEFT, _LEFT_S = (".*.tmp", "parts/.*.tmp", "kind=*/*/.*.tmp"), 86_400
_READ, _WRITE = os.O_RDONLY | files.NOFOLLOW, os.O_WRONLY | os.O_CREAT | os.O_EXCL | files.NOFOLLOW
_OPEN = os.O_RDONLY | files.NOFOLLOW | getattr(os, "O_DIRECTORY", 0)
_OWNER_ONLY = 0o700
OWN_BYTES, OWN_AGE_S = 10 << 30, 90 * 86_400  # of the user's own: what is older or too much goes
_KEY, _KEY_BYTES = "key", 32  # as many as a signature has
_OF_RUNS = re.compile("[0-9a-f]{32}")  # a directory there: of one with run files
_ROOT = Path(__file__).parents[1]


class Place(NamedTuple):
    """A directory for such files.

    Attributes:
        base: the part of its path that is there, or the user's cache; it may lead through links.
        below: the names of the directories from there on; none of them may be a link.
        mode: of directories that are made.
    """

    base: Path
    below: tuple[str, ...]
    mode: int = _OWNER_ONLY

    @property
    def path(self) -> Path:
        """The directory itself."""
        return self.base.joinpath(*self.below)


@contextlib.contextmanager
def switched_off() -> Iterator[None]:
    """Meanwhile nothing is kept, and nothing that was kept is read."""
    global IS_ON
    before, IS_ON = IS_ON, False
    try:
        yield
    finally:
        IS_ON = before


def keep(directory: Path, name: str, about: str, content: bytes) -> None:
    """Keeps a file of this name beside the run files of a directory, if that is possible; where several do so
    at once, the last one's stays. It is signed: only this very package believes it, for this very user, and
    only where it is asked for with the same `about`.
    """
    key = _key()
    for place in places(directory) if key else ():
        with contextlib.suppress(OSError):
            with new_file(place, name) as file:
                file.writelines((_signature(key, about, content), content))
            return


def kept(directory: Path, name: str, about: str) -> Iterator[bytes]:
    """The contents that `keep` has kept and nobody has changed: first the one beside the run files."""
    for place in places(directory):
        with contextlib.suppress(OSError):
            found = read(place, name, {os.geteuid()}) or b""
            signature, content = found[:_KEY_BYTES], found[_KEY_BYTES:]
            key = _key() if found else b""
            if key and hmac.compare_digest(_signature(key, about, content), signature):
                yield content


def _signature(key: bytes, about: str, content: bytes) -> bytes:
    asked = json.dumps([code(), sys.version, sorted(KINDS), about])
    return hmac.digest(key, f"{asked}\n".encode() + content, "sha256")


@once
def code() -> str:
    """A digest of this package: another one, maybe of the same version, may make other figures."""
    digest = hashlib.sha256()
    for path in sorted(_ROOT.rglob("*.py")):
        digest.update(os.fsencode(path.relative_to(_ROOT)) + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _key() -> bytes:
    """The user's own, made when it is first needed; empty where nothing can be kept."""
    own = _own()
    if own is None or not IS_ON:
        return b""
    for _ in range(2):
        with contextlib.suppress(OSError):
            found = read(own, _KEY, {os.geteuid()}) or b""
            if len(found) == _KEY_BYTES:
                return found
        with contextlib.suppress(OSError), new_file(own, _KEY) as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
    return b""


def _own(*below: str) -> Place | None:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Place(Path(home), ("flagscale_perf", *below)) if os.path.isabs(home) else None


@once
def _bound() -> None:
    """Removes what is too old in the user's own cache, and the oldest of what is too much: once in a process,
    as it takes a look at all of it.
    """
    found, own = list[tuple[float, int, Path]](), _own()
    with contextlib.suppress(OSError):
        for directory in own.path.iterdir() if own else ():
            if _OF_RUNS.fullmatch(directory.name) and not directory.is_symlink():
                states = [path.lstat() for path in (directory, *directory.rglob("*"))]
                sizes = sum(each.st_size for each in states)
                found.append((max(each.st_mtime for each in states), sizes, directory))
    left = OWN_BYTES
    for changed, size, directory in sorted(found, reverse=True):
        left -= size
        if left < 0 or changed < time.time() - OWN_AGE_S:
            shutil.rmtree(directory, ignore_errors=True)


def places(directory: Path) -> Iterator[Place]:
    """Those for a directory of run files, the best first; only a try tells whether one can be written. None
    where nothing is kept.
    """
    if IS_ON:
        yield Place(directory, (CACHE,), files.DIRECTORY_MODE)
        where = hashlib.sha256(os.fsencode(os.path.realpath(directory))).hexdigest()
        if own := _own(where[:32]):
            yield own


def read(place: Place, name: str, owners: Collection[int]) -> bytes | None:
    """The content of a file there; None of one that belongs to none of these users, or is too long. Raises
    OSError.
    """
    path = PurePosixPath(name)
    with _directory(place, path, is_made=False) as directory:
        fd = files.open_regular(path.name, _READ, directory)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        return file.read() if found.st_uid in owners and found.st_size <= MAX_BYTES else None


@contextlib.contextmanager
def new_file(place: Place, name: str) -> Iterator[BinaryIO]:
    """A file that has this name once it is written: whole or not at all. Raises OSError."""
    if place == _own(*place.below[1:]):
        _bound()
    last = PurePosixPath(name).name
    temporary = f".{secrets.token_hex(8)}.tmp"  # several may write, on several machines
    with _directory(place, PurePosixPath(name), is_made=True) as directory:
        fd = os.open(temporary, _WRITE, files.FILE_MODE, dir_fd=directory)
        try:
            with os.fdopen(fd, "wb") as file:
                yield file
            os.rename(temporary, last, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise


def sweep(place: Place) -> None:
    """Removes temporary files that are a day old: their writers were killed, as none writes for so long."""
    with contextlib.suppress(OSError):
        for left in chain.from_iterable(map(place.path.glob, _LEFT)):
            if left.lstat().st_mtime < time.time() - _LEFT_S:
                left.unlink(missing_ok=True)


@contextlib.contextmanager
def _directory(place: Place, name: PurePosixPath, is_made: bool) -> Iterator[int]:
    """The directory in which a file of that name is. Raises OSError, also for a link."""
    if is_made and not place.base.exists():
        place.base.mkdir(_OWNER_ONLY, parents=True)
    directory = os.open(place.base, _OPEN & ~files.NOFOLLOW)
    try:
        for part in (*place.below, *name.parts[:-1]):
            if is_made:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, place.mode, dir_fd=directory)
            below = os.open(part, _OPEN, dir_fd=directory)
            os.close(directory)
            directory = below
        yield directory
    finally:
        os.close(directory)
