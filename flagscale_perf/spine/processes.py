"""Reads what Linux says of a process in /proc/PID/stat."""

from __future__ import annotations

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
