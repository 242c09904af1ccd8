"""What /proc says about the processes of this machine."""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple


class ProcessStat(NamedTuple):
    """A live process, from /proc/PID/stat.

    Attributes:
        parent: its parent's pid.
        group: its process group.
        session: its process session.
        start_ticks: when it started, in clock ticks since boot; pid and start together are never used twice.
    """

    parent: int
    group: int
    session: int
    start_ticks: int


def process_stat(pid: int) -> ProcessStat | None:
    """None for a process that is gone, or a zombie. Raises OSError where /proc cannot be read now."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # From the third field on: the second one, in parentheses, may hold anything.
            state, *numbers = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if state in "ZXx":
        return None
    return ProcessStat(int(numbers[0]), int(numbers[1]), int(numbers[2]), int(numbers[18]))


def own_pids() -> list[int]:
    """Pids of this user's processes. Raises OSError where /proc cannot be read."""
    uid, pids = os.getuid(), []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == uid:
                pids.append(int(name))
    return pids
