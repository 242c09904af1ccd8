"""The CPU limit of a container: what its control group allows, and how often it was throttled by that."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

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


def read_limit(groups: Iterable[Path]) -> CpuLimit | None:
    """The tightest limit of these groups; None without any. Raises OSError, ValueError, LookupError."""
    limits = [(milli, group) for group in groups if (milli := _milli_cpus(group)) is not None]
    if not limits:
        return None
    milli, group = min(limits, key=lambda limit: limit[0])
    counts = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return CpuLimit(milli, int(counts["nr_periods"]), int(counts["nr_throttled"]))


def _milli_cpus(group: Path) -> int | None:
    if (group / "cpu.max").is_file():
        quota, period = (group / "cpu.max").read_text().split()
    elif (group / "cpu.cfs_quota_us").is_file():
        quota, period = ((group / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
    else:
        return None
    return None if quota in ("max", "-1") else int(quota) * _MILLI // int(period)
