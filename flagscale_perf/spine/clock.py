"""Two clocks: a monotonic one for every duration, and the wall clock, which only labels."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from flagscale_perf.spine.processes import process_stat

# CLOCK_MONOTONIC, in nanoseconds: the same for every process of one machine, immune to clock changes.
monotonic_ns = time.perf_counter_ns

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
_LOOKS = 3  # at both clocks

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_INITIAL_TIME = 0xEFFFFFFA  # the time namespace that the kernel begins with


@dataclass(frozen=True)
class Anchor:
    """One instant read from both clocks, so that a monotonic mark can be shown as wall-clock time.

    Attributes:
        wall_ns: Unix time in nanoseconds.
        mono_ns: `monotonic_ns()` at the same instant.
    """

    wall_ns: int
    mono_ns: int

    @classmethod
    def now(cls) -> Anchor:
        """The present instant on both clocks: of a few looks, the one that took least. A machine that takes
        the processor away between two clocks would set them apart.
        """
        looks = [(monotonic_ns(), time.time_ns(), monotonic_ns()) for _ in range(_LOOKS)]
        before_ns, wall_ns, after_ns = min(looks, key=lambda look: look[2] - look[0])
        return cls(wall_ns=wall_ns, mono_ns=(before_ns + after_ns) // 2)

    def wall_of(self, mono_ns: int) -> int:
        """Unix time in nanoseconds of a monotonic mark, whatever the wall clock was set to since then."""
        return self.wall_ns + (mono_ns - self.mono_ns)


def process_start_ns(pid: int | str = "self") -> int | None:
    """When the process started, on the monotonic clock, to a tick of 10 ms; None for one that has ended, and
    without a Linux /proc.
    """
    try:
        stat = process_stat(pid)
        ticks_per_s = os.sysconf("SC_CLK_TCK")
        since_boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    except (OSError, ValueError, AttributeError):
        return None
    return (
        None if stat is None else monotonic_ns() - since_boot_ns + stat.start_ticks * NS_PER_S // ticks_per_s
    )


def boot_id() -> str | None:
    """Identifies this boot of this machine: monotonic marks with the same id are on the same clock. In a time
    namespace, which has a clock of its own, the namespace's number is part of it. None without a Linux /proc.
    """
    try:
        boot = BOOT_ID.read_text().strip()
    except OSError:
        return None
    with contextlib.suppress(OSError):  # a kernel without time namespaces
        namespace = os.stat("/proc/self/ns/time").st_ino
        if boot and namespace != _INITIAL_TIME:
            return f"{boot} {namespace}"
    return boot or None


def local_time(wall_ns: int) -> datetime:
    """Unix nanoseconds as local time without a zone, in whole seconds, as the text log shows it."""
    return datetime.fromtimestamp(wall_ns // NS_PER_S)
