"""Where that lies which was made of a run file and can be made again: beside it in `cache/`, or, where that
cannot be written, in the user's own cache. Nothing here is needed: it can be deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from flagscale_perf.spine import files
from flagscale_perf.spine.session import CACHE

IS_ON = True
MAX_BYTES = 256 << 20  # what is longer is none of ours
_READ, _WRITE = os.O_RDONLY | files.NOFOLLOW, os.O_WRONLY | os.O_CREAT | os.O_EXCL | files.NOFOLLOW
_OPEN = os.O_RDONLY | files.NOFOLLOW | getattr(os, "O_DIRECTORY", 0)
_OWNER_ONLY = 0o700
_SECRET, _SECRET_BYTES, _SEAL = "key", 32, "sha256"


class Place(NamedTuple):
    """Where files of a run file may be kept.

    Attributes:
        base: a directory that is there, or the user's.
        below: the way from there, on which no link is followed.
        mode: of directories that are made.
    """

    base: Path
    below: tuple[str, ...]
    mode: int

    @property
    def path(self) -> Path:
        """The directory itself."""
        return self.base.joinpath(*self.below)


@contextlib.contextmanager
def switched_off() -> Iterator[None]:
    """Nothing is kept in it, and nothing that was kept is read."""
    global IS_ON
    before, IS_ON = IS_ON, False
    try:
        yield
    finally:
        IS_ON = before


def keep(run: Path, name: str, write: Callable[[BinaryIO], object]) -> Path | None:
    """Puts a file of this name, such as `kind=steps/part=1.parquet`, beside a run file: whole or not at all.
    Several may do so at once; the last one's stays. Returns its path; None where it cannot be kept.
    """
    for place in places(run):
        with contextlib.suppress(OSError):
            with new_file(place, name) as file:
                write(file)
            return place.path / name
    return None


def kept(run: Path, name: str) -> Iterator[bytes]:
    """What is there of that name, beside the run file first; of other users only what is of the owner of
    the run file's directory.
    """
    for place in places(run):
        with contextlib.suppress(OSError):
            if (found := read(place, name, {os.geteuid(), os.stat(run.parent).st_uid})) is not None:
                yield found


def keep_sealed(run: Path, name: str, content: bytes) -> None:
    """Keeps what nobody but this user will believe, where that is possible."""
    if (key := _key()) is not None:
        seal = hmac.digest(key, content, _SEAL)
        keep(run, name, lambda file: file.writelines((seal, content)))


def kept_sealed(run: Path, name: str) -> Iterator[bytes]:
    """What this user has kept so, whole and unchanged."""
    key = _key()
    for found in kept(run, name):
        seal, content = found[:_SECRET_BYTES], found[_SECRET_BYTES:]
        if key is not None and hmac.compare_digest(hmac.digest(key, content, _SEAL), seal):
            yield content


def _key() -> bytes | None:
    """The user's own, made when it is first needed; None where it cannot be kept itself."""
    own, made = _own(), secrets.token_bytes(_SECRET_BYTES)
    if own is None or not IS_ON:
        return None
    found = _secret(own)
    with contextlib.suppress(OSError):
        if found is None:
            with new_file(own, _SECRET) as file:
                file.write(made)
            found = _secret(own)
    return found


def _secret(own: Place) -> bytes | None:
    with contextlib.suppress(OSError):
        found = read(own, _SECRET, {os.geteuid()})
        return found if found and len(found) == _SECRET_BYTES else None
    return None


def _own(*below: str) -> Place | None:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Place(Path(home), ("flagscale_perf", *below), _OWNER_ONLY) if os.path.isabs(home) else None


def places(run: Path) -> Iterator[Place]:
    """Those of a run file, the best first; a try tells which can be written. None where nothing is kept."""
    if IS_ON:
        yield Place(run.parent, (CACHE,), files.DIRECTORY_MODE)
        where = hashlib.sha256(os.fsencode(os.path.realpath(run.parent))).hexdigest()
        if own := _own(where[:32]):
            yield own


def read(place: Place, name: str, owners: Collection[int]) -> bytes | None:
    """The content of a file of that name there; None of one of another user. Raises OSError."""
    path = PurePosixPath(name)
    with _directory(place, path, is_made=False) as directory:
        fd = files.open_regular(path.name, _READ, directory)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        return file.read() if found.st_uid in owners and found.st_size <= MAX_BYTES else None


@contextlib.contextmanager
def new_file(place: Place, name: str) -> Iterator[BinaryIO]:
    """A file that has this name once it is written: whole or not at all. Raises OSError."""
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
