"""The CPU limit of a container: what its control group allows, and how often it was throttled by that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CGROUP = Path("/sys/fs/cgroup")
_MILLI = 1000


class CpuLimit(NamedTuple):
    """A reading.

    Attributes:
        milli_cpus: how many CPUs the group may keep busy, in thousandths.
        periods: of the limit in which the group ran, since it was made.
        throttled_periods: of these, those in which it had to stop until the next one.
    """

    milli_cpus: int
    periods: int
    throttled_periods: int


def groups_of(membership: str, mounts: Path = CGROUP) -> list[Path]:
    """The control groups for CPU of a process, and those around them, the innermost first.

    Args:
        membership: the content of its /proc/PID/cgroup.
        mounts: where control groups are mounted. Inside a container the path that the kernel names may not
            be there; then the mount itself is the group.
    """
    found: list[Path] = []
    for line in membership.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            roots = [mounts, mounts / "unified"]
        elif "cpu" in controllers.split(","):
            roots = [mounts / controllers, mounts / "cpu"]
        else:
            continue
        found += [group for root in roots for group in _up(root, path) if (group / "cpu.stat").is_file()]
    return found


def read_limit(groups: list[Path]) -> CpuLimit | None:
    """The tightest limit of these groups; None without any. Raises OSError, ValueError, LookupError."""
    limits = [(milli, group) for group in groups if (milli := _milli_cpus(group)) is not None]
    if not limits:
        return None
    milli, group = min(limits, key=lambda limit: limit[0])
    counts = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return CpuLimit(milli, int(counts["nr_periods"]), int(counts["nr_throttled"]))


def _up(root: Path, path: str) -> Iterator[Path]:
    group = root / path.strip("/")
    yield group
    while group != root:
        group = group.parent
        yield group


def _milli_cpus(group: Path) -> int | None:
    if (group / "cpu.max").is_file():
        quota, period = (group / "cpu.max").read_text().split()
    elif (group / "cpu.cfs_quota_us").is_file():
        quota, period = ((group / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
    else:
        return None
    return None if quota in ("max", "-1") else int(quota) * _MILLI // int(period)
