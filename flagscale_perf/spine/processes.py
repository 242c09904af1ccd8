"""What Linux says of a process: in /proc/PID/stat, and whether it is there."""

from __future__ import annotations

import os
from typing import NamedTuple


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


def pid_namespace() -> int | None:
    """In which this process's pids count; None where /proc does not say, or belongs to another one."""
    try:
        is_own = os.readlink("/proc/self") == str(os.getpid())
        return os.stat("/proc/self/ns/pid").st_ino if is_own else None
    except OSError:
        return None
