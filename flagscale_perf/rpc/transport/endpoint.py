"""Where a server listens, and the guarantee that no other process does.

A path is claimed by a lock, which the system releases when the process ends, however it ends. Only the lock's
holder removes a socket there, and only one of this user that nothing answers at. Nothing else is ever
removed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import ipaddress
import os
import socket
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from flagscale_perf.rpc.errors import Refused
from flagscale_perf.rpc.options import ClientOptions, ServerOptions

TRANSPORTS = {"ipc": "IPC", "tcp": "TCP", "inproc": "INPROC"}
MOST_PATH_BYTES = 107


def transport_of(endpoint: str) -> str:
    """One of "IPC", "TCP" and "INPROC". Raises `Refused`."""
    scheme, _, rest = endpoint.partition("://")
    if scheme not in TRANSPORTS or not rest or endpoint.startswith("ipc://@"):
        raise Refused(f"endpoint {endpoint!r}: write ipc:///PATH, tcp://ADDRESS:PORT or inproc://NAME")
    return TRANSPORTS[scheme]


def path_of(endpoint: str) -> Path | None:
    """Of an ipc endpoint."""
    return Path(endpoint.removeprefix("ipc://")) if endpoint.startswith("ipc://") else None


def private_directory() -> Path:
    """A directory accessible to this user only, created if missing. Raises `Refused` if it is not that."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    path = (
        Path(base, "flagscale_perf") if base else Path(tempfile.gettempdir(), f"flagscale_perf-{os.getuid()}")
    )
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise Refused(f"cannot make {path} for sockets: {error.strerror}; set XDG_RUNTIME_DIR") from None
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise Refused(
            f"{path} is not a directory of this user alone (0700): remove it, or set XDG_RUNTIME_DIR"
        )
    return path


def default_endpoint() -> str:
    """The endpoint of this user's server if none is named."""
    return f"ipc://{private_directory()}/rpc.ipc"


def client_endpoint(options: ClientOptions) -> str:
    """The endpoint to connect to. Raises `Refused`."""
    endpoint = options.endpoint or default_endpoint()
    if transport_of(endpoint) == "TCP" and not options.allow_remote:
        _check_loopback(endpoint)
    return endpoint


def server_endpoint(options: ServerOptions) -> str:
    """The endpoint to bind. Raises `Refused`."""
    endpoint = options.endpoint or default_endpoint()
    if transport_of(endpoint) == "TCP" and not options.allow_remote:
        _check_loopback(endpoint)
    return endpoint


def _check_loopback(endpoint: str) -> None:
    host = endpoint.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    try:
        inside = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        inside = False
    if not inside:
        raise Refused(
            f"endpoint {endpoint!r} is open to other machines, and nothing is encrypted or authenticated "
            "there: "
            "write tcp://127.0.0.1:PORT, or set allow_remote=True"
        )


def side_socket(endpoint: str) -> str:
    """Path of the unix socket that belongs to an ipc endpoint: beside it in a private directory, otherwise in
    this user's own directory.
    """
    path = path_of(endpoint)
    assert path is not None
    parent = path.parent.stat()
    if parent.st_uid == os.getuid() and not parent.st_mode & 0o077:
        beside = f"{path}.unix"
        if len(beside.encode()) <= MOST_PATH_BYTES:
            return beside
    name = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:16]
    return f"{private_directory()}/{name}.unix"


class Claim:
    """The right to listen at a path and its side socket, until `release` or the end of the process."""

    def __init__(self, endpoint: str) -> None:
        """Raises `Refused` if another process listens there, or if anything other than a socket of this user
        is there.
        """
        path = path_of(endpoint)
        assert path is not None
        _check_directory(path)
        self._lock_path = Path(f"{path}.lock")
        self._paths: list[Path] = []
        self._descriptor = _lock(self._lock_path)
        try:
            for each in (path, Path(side_socket(endpoint))):
                _remove_stale(each)
                self._paths.append(each)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Removes what this process left at the path."""
        if self._descriptor < 0:
            return
        for path in self._paths:
            with suppress(FileNotFoundError):
                if _is_own_socket(path):
                    path.unlink()
        with suppress(FileNotFoundError):
            self._lock_path.unlink()
        os.close(self._descriptor)
        self._descriptor = -1


def clear_after(endpoint: str, process: int, patience_s: float) -> None:
    """Removes what a killed server left. Does nothing if another one is running there.

    Args:
        endpoint: of the server.
        process: its id.
        patience_s: how long to wait for the system to let go of what the process had.
    """
    path = path_of(endpoint)
    deadline = time.monotonic() + patience_s
    while path is not None:
        try:
            if Path(f"{path}.lock").read_text().strip() != str(process):
                return
            Claim(endpoint).release()
        except (Refused, OSError):
            if time.monotonic() < deadline and path.exists():
                time.sleep(0.01)
                continue
        return


def check_owner(endpoint: str) -> bool:
    """Whether a client may try this path; False if nothing is there yet. Raises `Refused` if it is not a
    socket of this user.
    """
    path = path_of(endpoint)
    assert path is not None
    try:
        found = path.lstat()
    except OSError:
        return False
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
        raise Refused(f"{path} is not a socket of this user ({_describe(found)}): name another endpoint")
    return True


def _check_directory(path: Path) -> None:
    if len(os.fsencode(f"{path}")) > MOST_PATH_BYTES:
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
            "of "
            "this user"
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
                    "end it, or "
                    "name another endpoint"
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
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
        raise Refused(
            f"{path} is not a socket of this user ({_describe(found)}), and is not removed: name another"
        )
    if _answers(path):
        raise Refused(f"another process listens at {path} already: end it, or name another endpoint")
    path.unlink()


def _answers(path: Path) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as probe:
            probe.setblocking(False)
            code = probe.connect_ex(str(path))
            if code in (0, errno.EAGAIN):  # EAGAIN: alive, and its queue is full
                return True
            if code != errno.EPROTOTYPE:
                return False
    return True


def _is_own_socket(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == os.getuid()


def _describe(found: os.stat_result) -> str:
    return f"{stat.filemode(found.st_mode)}, user {found.st_uid}"
