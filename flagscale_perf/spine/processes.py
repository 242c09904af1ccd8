"""What Linux says of a process: in /proc/PID/stat, whether it is there, and in which control groups it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CGROUP = Path("/sys/fs/cgroup")


class ProcessStat(NamedTuple):
    """A process that has not ended.

    Attributes:
        parent: its parent's pid.
        group: its process group.
        session: its session.
        start_ticks: when it started, in clock ticks since boot; no other process has the same pid and this.
    """

    parent: int
    group: int
    session: int
    start_ticks: int


def process_stat(pid: int | str) -> ProcessStat | None:
    """None for a process that has ended, also while its parent has not yet asked for its exit status.

    `pid` may be "self". Raises OSError or ValueError where the system does not say.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # From the third field on: the second is the name in parentheses, which may hold anything.
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if len(fields) < 20:
        raise ValueError(
            f"/proc/{pid}/stat has {len(fields)} fields after the name; 20 or more were expected"
        )
    if fields[0] in "ZXx":
        return None
    return ProcessStat(int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def cpu_wait_ns(task: str) -> int | None:
    """For how long a thread has been ready to run and had no CPU, in its whole life. `task`: its folder in
    /proc, such as "thread-self", or a pid for the first thread. None where the system does not say.
    """
    try:
        with open(f"/proc/{task}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return None


def pid_namespace() -> int | None:
    """In which this process's pids count; None where /proc does not say, or belongs to another one."""
    try:
        is_own = os.readlink("/proc/self") == str(os.getpid())
        return os.stat("/proc/self/ns/pid").st_ino if is_own else None
    except OSError:
        return None


def control_groups(controller: str, membership: str, mounts: Path = CGROUP) -> Iterator[Path]:
    """The control groups of a process for "cpu" or "memory", and those around them, the innermost first; also
    where none is. Inside a container the path that the kernel names may not be there; then the mount itself
    is the group.

    Args:
        controller: what they limit.
        membership: the content of its /proc/PID/cgroup.
        mounts: where control groups are mounted.
    """
    for line in membership.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        roots: list[Path] = []
        if number == "0" and not controllers:
            roots = [mounts, mounts / "unified"]
        elif controller in controllers.split(","):
            roots = [*dict.fromkeys([mounts / controllers, mounts / controller])]
        for root in roots:
            group = root / path.strip("/")
            yield group
            while group != root:
                group = group.parent
                yield group
