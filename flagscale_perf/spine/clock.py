"""Two clocks, never mixed: a monotonic one for durations, the wall clock only as a label."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import datetime

from flagscale_perf.spine.processes import process_stat

# CLOCK_MONOTONIC, in nanoseconds: the same for every process of one machine, immune to clock changes.
monotonic_ns = time.perf_counter_ns

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000


@dataclass(frozen=True)
class Anchor:
    """One instant seen on both clocks; turns a monotonic mark into a wall-clock label.

    Attributes:
        wall_ns: Unix time in nanoseconds.
        mono_ns: `monotonic_ns()` at the same instant.
    """

    wall_ns: int
    mono_ns: int

    @classmethod
    def now(cls) -> Anchor:
        """The present instant on both clocks."""
        return cls(wall_ns=time.time_ns(), mono_ns=monotonic_ns())

    def wall_of(self, mono_ns: int) -> int:
        """Unix time in nanoseconds of a monotonic mark, as if the wall clock had never been set since the
        anchor.
        """
        return self.wall_ns + (mono_ns - self.mono_ns)


def process_start_ns() -> int | None:
    """Monotonic mark of this process's start, to a clock tick (10 ms); None where there is no Linux /proc."""
    try:
        stat = process_stat(os.getpid())
        if stat is None:
            return None
        age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        age_ns -= stat.start_ticks * NS_PER_S // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return monotonic_ns() - age_ns


def local_time(wall_ns: int) -> datetime:
    """Unix nanoseconds as naive local time, whole seconds (what the text log shows)."""
    return datetime.fromtimestamp(wall_ns // NS_PER_S)
