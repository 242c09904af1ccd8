"""Opening, replacing and appending files: a full disk and a removed directory are survived, and nothing is
written through a link or into a file that is not ours.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from flagscale_perf.spine.errors import PerfError

try:
    import fcntl
except ImportError:  # Windows, where run files are read, not written
    fcntl = None  # type: ignore[assignment]

DIRECTORY_MODE, FILE_MODE = 0o750, 0o640  # both less the umask
MAX_WAITING_BYTES = 4 << 20
TICK_NS = 2 * 10**9  # as file systems keep times at worst: a younger file may change and keep its time
# What only some systems have: not to wait for a pipe, links and other programs; bytes as they are.
_NONBLOCK, NOFOLLOW, _CLOEXEC, _BINARY = (
    getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "O_BINARY")
)
_NEW = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | NOFOLLOW | _CLOEXEC
_SHARED = os.O_WRONLY | os.O_APPEND | os.O_CREAT | NOFOLLOW


_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/{1,2}(?P<rest>.*)", re.DOTALL)


def local_path(text: str) -> str:
    """A path as the user wrote it, with `~` and `~name` as a shell has them. Raises PerfError for an address
    such as s3://bucket/run, which would become a directory of that name here.
    """
    if found := _ADDRESS.fullmatch(text):
        example = found["rest"] if found["scheme"].lower() == "file" else "/mnt/..., where it is mounted"
        raise PerfError(f"{text!r} is an address, not a path of this machine; write {example}")
    expanded = os.path.expanduser(text)
    if expanded.startswith("~"):
        raise PerfError(f"{text!r} names the home of a user who is not known here; write the whole path")
    return expanded


class NotRegularError(OSError):
    """A directory, a pipe or a device where a regular file belongs."""


def make_directory(path: Path) -> None:
    """Makes the directory unless it is there. Raises OSError."""
    if path.is_dir():
        return
    if path.exists():
        raise NotADirectoryError(f"{path} is not a directory")
    path.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)


def unwritable(directory: str) -> str | None:
    """Why nothing could be written into the directory, which need not be there; None if it can. Tries it in
    the nearest directory that is there, and leaves nothing behind.
    """
    place = directory
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if not os.path.isdir(place):
        return f"{place} is a file"
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".flagscale_perf_", dir=place))
    except OSError as error:
        return f"{place}: {error.strerror}"
    return None


def open_new(path: Path) -> int:
    """A new file, opened for appending; its directory is made if need be. Raises OSError."""
    make_directory(path.parent)
    return os.open(path, _NEW, FILE_MODE)


def is_usable_name(text: str) -> bool:
    """Whether a file can be meant by it: something printable, without control characters."""
    return bool(text.strip()) and not any(ord(char) < 32 or ord(char) == 127 for char in text)


def given_path(value: object, name: str) -> Path:
    """The absolute path that a caller means by a text or a path. Raises PerfError for anything else."""
    if not isinstance(value, str | os.PathLike) or not is_usable_name(os.fsdecode(value)):
        raise PerfError(f"{name} is {value!r}; give a path, for example 'logs/run1'")
    return Path(local_path(os.fsdecode(value))).absolute()


def open_regular(path: Path | str, flags: int = os.O_RDONLY, directory: int | None = None) -> int:
    """A descriptor of a regular file; never waits for the other end of a pipe of that name.

    `flags` as in `os.open`; `directory`: descriptor that a relative path starts from. Raises OSError, for
    anything but a regular file NotRegularError.
    """
    fd = os.open(path, flags | _NONBLOCK | _CLOEXEC | _BINARY, FILE_MODE, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotRegularError(f"{path} is not a regular file")
    return fd


def open_shared(path: Path) -> int:
    """A regular file, there already or not, opened for appending. Raises OSError, also for a link."""
    make_directory(path.parent)
    return open_regular(path, _SHARED)


def lock(fd: int) -> bool:
    """Marks the file as in use until it is closed; False where the file system has no locks.

    Raises BlockingIOError if it is in use already.
    """
    return _flock(fd, "LOCK_EX")


def is_locked(fd: int) -> bool | None:
    """Whether a process holds the file as `lock` does; None where the file system has no locks."""
    try:
        return False if _flock(fd, "LOCK_SH") else None
    except BlockingIOError:
        return True


def _flock(fd: int, kind: str) -> bool:
    if fcntl is None:
        return False
    try:
        fcntl.flock(fd, getattr(fcntl, kind) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def open_locked(path: Path) -> int:
    """Like `open_shared`, for the file's only writer. Raises BlockingIOError if another process is that."""
    fd = open_shared(path)
    try:
        lock(fd)
    except OSError:
        os.close(fd)
        raise
    return fd


def replace_file(
    path: Path,
    content: bytes | Iterable[bytes],
    mode: int = FILE_MODE,
    directory: int | None = None,
    is_durable: bool = True,
) -> None:
    """Puts a whole file in the place of the old one, or leaves the old one as it is. Raises OSError.

    `content`: in pieces where it may be too long for memory. `directory`: descriptor that a relative path
    starts from; without one the path's directory is made if need be. `is_durable`: the file also survives a
    crash of the machine.
    """
    if directory is None:
        make_directory(path.parent)
    temporary = path.with_name(f".{path.name}.tmp")
    _remove(temporary, directory)  # left by a try that was cut short
    fd = os.open(temporary, _NEW, mode, dir_fd=directory)
    try:
        with os.fdopen(fd, "wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            if is_durable:
                os.fsync(fd)
        os.rename(temporary, path, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:  # also of what makes the pieces
        _remove(temporary, directory)
        raise


def _remove(path: Path, directory: int | None) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path, dir_fd=directory)


def rotate(path: Path, part_of: Callable[[int], Path]) -> None:
    """Moves a log and its older parts up by one, the newest of which is part 1; who appends to it finds the
    path free and begins anew. Raises OSError.
    """
    parts = [path]
    while (older := part_of(len(parts))).is_file():
        parts.append(older)
    for number in range(len(parts), 0, -1):
        if parts[number - 1].is_file():
            parts[number - 1].rename(part_of(number))


class AppendFile:
    """Lines wait in memory until `flush` has brought each whole to the file.

    When the path no longer leads to the file (removed, renamed), a new one is begun.

    Attributes:
        path: of the file.
        waiting_bytes: not flushed yet.
    """

    def __init__(
        self,
        path: Path,
        open_file: Callable[[Path], int],
        preamble: Callable[[bool], bytes],
        is_bounded: bool = True,
    ) -> None:
        """`preamble(fresh)` is what comes first after each opening; `fresh`: the file is empty.

        `is_bounded`: beyond `MAX_WAITING_BYTES` (hours of lines) new lines are refused; else the caller sees
        to it.
        """
        self.path = path
        self.waiting_bytes = 0
        self._open_file = open_file
        self._preamble = preamble
        self._is_bounded = is_bounded
        self._fd: int | None = None
        self._head = b""  # the preamble until it is in the file
        self._lines: list[bytes] = []
        self._done = 0  # bytes of head and lines that are in the file

    def write(self, line: bytes) -> None:
        """One whole line (or binary record). Raises OSError where too many wait already."""
        if self._is_bounded and self.waiting_bytes + len(line) > MAX_WAITING_BYTES:
            raise OSError(
                errno.ENOBUFS, f"{MAX_WAITING_BYTES} bytes wait to be written, what comes now is left out"
            )
        self._lines.append(line)
        self.waiting_bytes += len(line)

    def flush(self) -> None:
        """Brings every line to the file. Raises OSError and keeps the rest."""
        if self._fd is None or (self._lines and not self._is_at_path()):
            self._reopen()
        data = memoryview(self._head + b"".join(self._lines))
        while self._done < len(data) and self._fd is not None:
            self._done += os.write(self._fd, data[self._done :])
        self._head = b""
        self._lines.clear()
        self._done = self.waiting_bytes = 0

    def size(self) -> int:
        """The file's size in bytes; 0 before it is opened."""
        return 0 if self._fd is None else os.fstat(self._fd).st_size

    def truncate(self) -> None:
        """Empties the file in place, which followers keep open; the preamble precedes the waiting lines."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            self._begin(fresh=True)

    def close(self) -> None:
        """Gives the descriptor back, also where that raises OSError."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _is_at_path(self) -> bool:
        """Raises OSError where it is unknown now: a file begun anew without need would get lines twice."""
        try:
            there = os.stat(self.path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        here = os.fstat(self._fd or 0)
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)

    def _reopen(self) -> None:
        self.close()
        fd = self._open_file(self.path)
        try:
            fresh = os.fstat(fd).st_size == 0
        except OSError:
            os.close(fd)
            raise
        self._fd = fd
        self._begin(fresh)

    def _begin(self, fresh: bool) -> None:
        self._done = 0
        self._head = self._preamble(fresh)
