"""Reads how much of this machine's memory is free, and what the kernel has killed for want of it.

A process in a control group (a container, a batch job) has the memory that its groups leave, which may be far
less than the machine's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from flagscale_perf.spine.processes import CGROUP, control_groups

_NO_LIMIT = 1 << 60  # version 1 has a number near 2**63 where there is no limit
_KIB = 1024


class Free(NamedTuple):
    """Memory that processes started now can use.

    Attributes:
        free_bytes: so much.
        source: who says so.
    """

    free_bytes: int
    source: str


@dataclass(frozen=True)
class Kills:
    """How many processes the kernel has killed for want of memory; None where it does not say.

    Attributes:
        group: of this process's control group.
        machine: of the whole machine since it started.
    """

    group: int | None
    machine: int | None


@dataclass(frozen=True)
class Machine:
    """The files in which Linux says it.

    Attributes:
        proc, cgroup: where these file systems are mounted.
    """

    proc: Path = Path("/proc")
    cgroup: Path = CGROUP

    def free(self) -> Free | None:
        """The least of what the machine and each control group around this process leave; None if unknown."""
        available = _field(self.proc / "meminfo", "MemAvailable:")
        found = [] if available is None else [Free(available * _KIB, "MemAvailable of /proc/meminfo")]
        for directory in self._groups():
            found += self._left(directory)
        return min(found, default=None)

    def kills(self) -> Kills:
        """The counters, to be compared with those of a later moment."""
        group = next(self._groups(), None)
        in_group = None
        if group is not None:
            for name in ("memory.events", "memory.oom_control"):
                counted = _field(group / name, "oom_kill")
                in_group = counted if in_group is None else in_group
        return Kills(in_group, _field(self.proc / "vmstat", "oom_kill"))

    def _left(self, directory: Path) -> list[Free]:
        for limit_name, used_name, cache in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit = _number(directory / limit_name)
            used = _number(directory / used_name)
            if limit is not None and used is not None and limit < _NO_LIMIT:
                # what it holds of files can be given back
                cached = _field(directory / "memory.stat", cache) or 0
                return [Free(max(0, limit - used + cached), f"the limit in {directory}/{limit_name}")]
        return []

    def _groups(self) -> Iterator[Path]:
        """The memory control group of this process, and those around it."""
        membership = "\n".join(_lines(self.proc / "self" / "cgroup"))
        for group in control_groups("memory", membership, self.cgroup):
            if any((group / name).is_file() for name in ("memory.stat", "memory.events")):
                yield group


def _field(path: Path, name: str) -> int | None:
    for line in _lines(path):
        words = line.split()
        if len(words) >= 2 and words[0] == name and words[1].isdecimal():
            return int(words[1])
    return None


def _number(path: Path) -> int | None:
    words = next(iter(_lines(path)), "").split()
    return int(words[0]) if words and words[0].isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
