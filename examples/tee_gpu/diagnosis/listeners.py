"""Who listens at an endpoint, and where this user's ZeroMQ programs listen: from Linux' /proc, without
connecting.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flagscale_perf.spine.errors import PerfError

_ACCEPTS = 0x10000  # flag of a listening unix socket
_TCP_LISTENS = "0A"
_COMMAND_LENGTH = 100


@dataclass(frozen=True)
class Listener:
    """A listening process.

    Attributes:
        pid: None where the process is not this user's.
        command: its command line; empty where it is not known.
        environment: those of its variables whose names begin with LLAMA_.
    """

    pid: int | None
    command: str = ""
    environment: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return "a process of another user" if self.pid is None else f"pid {self.pid}: {self.command}"


@dataclass(frozen=True)
class EndpointState:
    """What is found at an endpoint.

    Attributes:
        endpoint: as it was given.
        kind: "live", "stale" (a socket's file without a listener), "missing", "not a socket", "closed"
            (TCP).
        listeners: who listens; more than one at a path where a later server took it over.
        mode, owner: of the file; None without one.
    """

    endpoint: str
    kind: str
    listeners: tuple[Listener, ...] = ()
    mode: str | None = None
    owner: str | None = None


def look_at(endpoint: str) -> EndpointState:
    """The state of `ipc://PATH` or `tcp://HOST:PORT`. Raises PerfError for any other text."""
    transport, _, address = endpoint.partition("://")
    if transport == "tcp" and address.rpartition(":")[2].isdigit():
        listeners = _owners(_listening().get(f"tcp://127.0.0.1:{address.rpartition(':')[2]}", []))
        return EndpointState(endpoint, "live" if listeners else "closed", listeners)
    if transport != "ipc" or not address:
        raise PerfError(f"endpoint {endpoint!r} is not valid; write ipc:///PATH or tcp://HOST:PORT")
    listeners, file = _owners(_listening().get(endpoint, [])), None
    with contextlib.suppress(OSError):
        file = os.lstat(address)
    if file is None:  # an abstract one, with @, has no file
        return EndpointState(endpoint, "live" if listeners else "missing", listeners)
    kind = "not a socket" if not stat.S_ISSOCK(file.st_mode) else "live" if listeners else "stale"
    return EndpointState(endpoint, kind, listeners, f"{stat.S_IMODE(file.st_mode):04o}", _user(file.st_uid))


def zeromq_servers() -> list[tuple[str, Listener]]:
    """Endpoints at which this user's programs that have loaded libzmq listen."""
    held = {inode: endpoint for endpoint, inodes in _listening().items() for inode in inodes}
    found = [
        (held[inode], _listener(pid))
        for pid in _own_pids()
        if _has_loaded_zeromq(pid)
        for inode in _inodes(pid)
        if inode in held
    ]
    return sorted(found, key=lambda each: each[0])


def _listening() -> dict[str, list[int]]:
    """Inodes of the listening sockets, by endpoint; those of tcp by their port alone."""
    found: dict[str, list[int]] = {}
    for fields in _rows("/proc/net/unix", 8):
        if int(fields[3], 16) & _ACCEPTS:
            found.setdefault(f"ipc://{fields[7]}", []).append(int(fields[6]))
    for fields in (*_rows("/proc/net/tcp", 11), *_rows("/proc/net/tcp6", 11)):
        if fields[3] == _TCP_LISTENS:
            port = int(fields[1].rpartition(":")[2], 16)
            found.setdefault(f"tcp://127.0.0.1:{port}", []).append(int(fields[9]))
    return found


def _rows(path: str, fields: int) -> Iterator[list[str]]:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        next(file, None)
        yield from (
            row
            for row in (line.split(maxsplit=fields - 1) for line in map(str.strip, file))
            if len(row) == fields
        )


def _owners(inodes: list[int]) -> tuple[Listener, ...]:
    wanted, found = set(inodes), []
    for pid in _own_pids() if wanted else ():
        if mine := _inodes(pid) & wanted:
            wanted -= mine
            found.append(_listener(pid))
    return (*found, *(Listener(None) for _ in wanted))


def _own_pids() -> list[int]:
    uid, pids = os.getuid(), []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == uid:
                pids.append(int(name))
    return pids


def _inodes(pid: int) -> set[int]:
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if match := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{name}")):
                    found.add(int(match[1]))
    return found


def _has_loaded_zeromq(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"libzmq" in Path(f"/proc/{pid}/maps").read_bytes()
    return False


def _listener(pid: int) -> Listener:
    command = " ".join(_zero_ended(pid, "cmdline"))
    variables = (entry.partition("=") for entry in _zero_ended(pid, "environ") if entry.startswith("LLAMA_"))
    return Listener(
        pid, command[:_COMMAND_LENGTH], tuple(sorted((name, value) for name, _, value in variables))
    )


def _zero_ended(pid: int, name: str) -> list[str]:
    with contextlib.suppress(OSError):
        return [
            part.decode(errors="replace")
            for part in Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")
            if part
        ]
    return []


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
