"""Where a server listens, and the guarantee that no other process does.

A path is claimed by a lock, which the system releases when the process ends, however it ends. Only the lock's
holder removes a socket there, and only one of this user that nothing answers at. Nothing else is ever
removed.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from flagscale_perf.spine.clock import boot_id
from tensor_rpc.errors import Refused

MOST_PATH_BYTES = 107


def transport_of(endpoint: str, allow_remote: bool) -> str:
    """ "IPC" or "TCP". Raises `Refused` for any other endpoint, and another machine's unless allowed."""
    scheme, _, rest = endpoint.partition("://")
    if scheme not in ("ipc", "tcp") or not rest or rest.startswith("@"):
        raise Refused(f"endpoint {endpoint!r}: write ipc:///PATH or tcp://ADDRESS:PORT")
    if scheme == "tcp" and not allow_remote and not _is_loopback(rest.rpartition(":")[0].strip("[]")):
        raise Refused(
            f"endpoint {endpoint!r} is open to other machines, and nothing is encrypted or authenticated "
            "there: write tcp://127.0.0.1:PORT, or set allow_remote=True"
        )
    return scheme.upper()


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def machine() -> str:
    """The same for processes that have one clock and know each other by their process ids, which those of
    another container do not; empty where that cannot be told.
    """
    boot = boot_id()
    try:
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}" if boot else ""
    except OSError:
        return ""


def path_of(endpoint: str) -> Path | None:
    """Of an ipc endpoint."""
    return Path(endpoint.removeprefix("ipc://")) if endpoint.startswith("ipc://") else None


def check_owner(path: Path) -> bool:
    """Whether a client may try this path; False if nothing is there yet. Raises `Refused` if it is not a
    socket of this user.
    """
    try:
        found = path.lstat()
    except OSError:
        return False
    if not _is_own_socket(found):
        raise Refused(f"{path} is not a socket of this user ({_describe(found)}): name another endpoint")
    return True


class Claim:
    """The right to listen at a path, until `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        """Raises `Refused` if another process listens there, or if anything other than a socket of this user
        is there.
        """
        _check_directory(path)
        self._path = path
        self._lock_path = Path(f"{path}.lock")
        self._descriptor = _lock(self._lock_path)
        try:
            _remove_stale(path)
        except BaseException:
            self._unlock()
            raise

    def release(self) -> None:
        """Removes what this process left at the path."""
        if self._descriptor >= 0:
            with suppress(FileNotFoundError):
                if _is_own_socket(self._path.lstat()):
                    self._path.unlink()
            self._unlock()

    def _unlock(self) -> None:
        with suppress(FileNotFoundError):
            self._lock_path.unlink()
        os.close(self._descriptor)
        self._descriptor = -1


def _check_directory(path: Path) -> None:
    if len(os.fsencode(path)) > MOST_PATH_BYTES:
        raise Refused(
            f"{path} has {len(os.fsencode(path))} bytes; a socket's path has at most {MOST_PATH_BYTES}"
        )
    try:
        found = path.parent.stat()
    except OSError:
        raise Refused(f"{path.parent} is not there: make it, or name another endpoint") from None
    if found.st_uid not in (os.getuid(), 0) or (found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX):
        raise Refused(
            f"others could replace files in {path.parent} ({_describe(found)}): name a path in a directory "
            "of this user"
        )


def _lock(path: Path) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Refused(f"cannot lock {path}: {error.strerror}") from None
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
                raise Refused(f"{path} is not a file of this user ({_describe(found)})")
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.read(descriptor, 20).decode(errors="replace").strip()
                raise Refused(
                    f"process {owner or 'unknown'} listens at {str(path).removesuffix('.lock')} already: "
                    "end it, or name another endpoint"
                ) from None
            with suppress(FileNotFoundError):
                if os.stat(path).st_ino == found.st_ino:  # otherwise its last owner removed it meanwhile
                    os.truncate(descriptor, 0)
                    os.write(descriptor, f"{os.getpid()}\n".encode())
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _remove_stale(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not _is_own_socket(found):
        raise Refused(
            f"{path} is not a socket of this user ({_describe(found)}), and is not removed: name another"
        )
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        code = probe.connect_ex(str(path))
    if code in (0, errno.EAGAIN, errno.EPROTOTYPE):  # EAGAIN: alive, and its queue is full
        raise Refused(f"another process listens at {path} already: end it, or name another endpoint")
    path.unlink()


def _is_own_socket(found: os.stat_result) -> bool:
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == os.getuid()


def _describe(found: os.stat_result) -> str:
    return f"{stat.filemode(found.st_mode)}, user {found.st_uid}"
