"""Reads how long the training thread waited for a CPU, and the pressure on its machine: from /proc, by the
writer, at no cost to the training.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.limits import Limit
from flagscale_perf.spine.live import BEGINS, ENDS, WORSENS, FindingRecord
from flagscale_perf.spine.processes import control_groups
from flagscale_perf.spine.records import record
from flagscale_perf.spine.units import percent
from flagscale_perf.training.cpu_limit import read_limit

_T = TypeVar("_T")
PERIOD_NS = NS_PER_S
_MOMENT_NS = NS_PER_S // 10
PROC = Path("/proc")
SHORT = Limit(0.05, "share", "ours: a thread with a core of its own waits less than 1 % of the time for it")
_JUDGED_NS = 30 * NS_PER_S  # of readings: a burst of others' work is over by then
_NS_PER_US, _KIB, _SECTOR_BYTES = 1000, 1024, 512
_MAX_WAITING = 4096  # readings kept for the iteration under way
_GROWING = (
    *("run_delay_ns", "on_cpu_ns", "cpu_stall_ns", "memory_stall_ns", "io_stall_ns", "disk_bytes"),
    *("network_bytes", "cpu_periods", "cpu_throttled_periods"),
)


@record("host", start="at_ns")
class HostRecord(NamedTuple):
    """A reading of rank 0 and its host. Counters only grow; None for what the system does not tell.

    Attributes:
        at_ns: monotonic mark.
        cores: that the training process may run on.
        run_delay_ns: for which the training thread was ready to run and had no CPU, since its start.
        on_cpu_ns: for which it ran.
        cpu_stall_ns, memory_stall_ns, io_stall_ns: for which anything on the machine (or in the container)
            waited for a CPU, for memory, for a disk (`some` of /proc/pressure).
        memory_available_bytes: of the machine.
        disk_bytes: read and written by all disks.
        network_bytes: received and sent, without loopback.
        cpu_limit_milli: thousandths of a CPU that the container may use; None without a limit, too.
        cpu_periods, cpu_throttled_periods: of that limit, see `CpuLimit`.
    """

    at_ns: int
    cores: int | None = None
    run_delay_ns: int | None = None
    on_cpu_ns: int | None = None
    cpu_stall_ns: int | None = None
    memory_stall_ns: int | None = None
    io_stall_ns: int | None = None
    memory_available_bytes: int | None = None
    disk_bytes: int | None = None
    network_bytes: int | None = None
    cpu_limit_milli: int | None = None
    cpu_periods: int | None = None
    cpu_throttled_periods: int | None = None


class MachineReader:
    """Reads what all processes of a machine have in common, once for those that ask at one moment."""

    def __init__(self) -> None:
        self._read_ns = -_MOMENT_NS
        self._found: tuple[int | None, ...] = ()

    def read(self, now_ns: int) -> tuple[int | None, ...]:
        """The fields of a `HostRecord` from `cpu_stall_ns` to `network_bytes`."""
        if now_ns - self._read_ns >= _MOMENT_NS:
            self._read_ns = now_ns
            stalls = [_known(partial(_stall_ns, resource)) for resource in ("cpu", "memory", "io")]
            more = [_known(read) for read in (_available_bytes, _disk_bytes, _network_bytes)]
            self._found = (*stalls, *more)
        return self._found


class HostReader:
    """Reads the host of a process, at most once in `PERIOD_NS`."""

    def __init__(
        self, pid: int, clock: Callable[[], int] = monotonic_ns, machine: MachineReader | None = None
    ) -> None:
        """The process's first thread is the one that trains. `machine`: of other processes, too."""
        self._pid, self._clock, self._machine = pid, clock, machine or MachineReader()
        self._due_ns = 0
        groups = _known(lambda: [*control_groups("cpu", (PROC / str(pid) / "cgroup").read_text())]) or []
        self._groups = [group for group in groups if (group / "cpu.stat").is_file()]

    def take(self) -> list[HostRecord]:
        """A new reading where it is time for one."""
        now_ns = self._clock()
        if now_ns < self._due_ns:
            return []
        self._due_ns = now_ns + PERIOD_NS
        return [self._read(now_ns)]

    def _read(self, now_ns: int) -> HostRecord:
        on_cpu_ns, run_delay_ns = _known(lambda: _schedule(self._pid)) or (None, None)
        cores = _known(lambda: len(os.sched_getaffinity(self._pid)))
        limit = _known(lambda: read_limit(self._groups)) or (None, None, None)
        own = (now_ns, cores, run_delay_ns, on_cpu_ns)
        return HostRecord._make([*own, *self._machine.read(now_ns), *limit])


def _known(read: Callable[[], _T]) -> _T | None:
    """None where the system has no such file, does not let us read it, or writes it in another way."""
    try:
        return read()
    except (OSError, ValueError, LookupError):
        return None


def _schedule(pid: int) -> tuple[int, int]:
    on_cpu, delay, _ = (PROC / str(pid) / "task" / str(pid) / "schedstat").read_text().split()
    return int(on_cpu), int(delay)


def _stall_ns(resource: str) -> int:
    some = (PROC / "pressure" / resource).read_text().splitlines()[0]
    return int(some.rpartition("total=")[2]) * _NS_PER_US


def _available_bytes() -> int:
    lines = dict(line.split(":", 1) for line in (PROC / "meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * _KIB


def _disk_bytes() -> int:
    """Bytes of whole disks, which include those of their partitions."""
    rows = [line.split() for line in (PROC / "diskstats").read_text().splitlines()]
    disks = {row[2]: int(row[5]) + int(row[9]) for row in rows if not row[2].startswith(("loop", "ram"))}
    whole = [name for name in disks if not any(name != disk and name.startswith(disk) for disk in disks)]
    return _SECTOR_BYTES * sum(disks[name] for name in whole)


def _network_bytes() -> int:
    rows = (line.split(":") for line in (PROC / "net/dev").read_text().splitlines()[2:])
    counts = {name.strip(): fields.split() for name, fields in rows}
    return sum(int(row[0]) + int(row[8]) for name, row in counts.items() if name != "lo")


class HostStretch(NamedTuple):
    """A rank and its host over a stretch of training; the fields are as in `IntervalRecord`."""

    host_ns: int | None = None
    cores: int | None = None
    run_delay_ns: int | None = None
    on_cpu_ns: int | None = None
    cpu_stall_ns: int | None = None
    memory_stall_ns: int | None = None
    io_stall_ns: int | None = None
    memory_available_bytes: int | None = None
    disk_bytes: int | None = None
    network_bytes: int | None = None
    cpu_limit_milli: int | None = None
    cpu_periods: int | None = None
    cpu_throttled_periods: int | None = None


def cpu_share(host: HostStretch) -> float:
    """Share of the time that the training thread was ready to run and had no CPU; below 0 if that was not
    read.
    """
    return -1.0 if host.run_delay_ns is None or not host.host_ns else host.run_delay_ns / host.host_ns


class Waiting(Protocol):
    """What a stretch of training says of its host; fields as in `HostStretch`."""

    @property
    def host_ns(self) -> int | None:
        """Between the readings."""

    @property
    def run_delay_ns(self) -> int | None:
        """For which the training thread was ready to run and had no CPU."""


class CpuWatch:
    """Tells that a rank's training thread waits for a CPU, that it waits twice as long as was told, and that
    it does not any more.
    """

    def __init__(self, who: str) -> None:
        """`who`: the rank, and its host where that is known."""
        self._who = who
        self._host_ns = self._delay_ns = 0
        self._told: float | None = None

    def add(self, stretch: Waiting) -> list[FindingRecord]:
        """The next stretch of training; one without readings says nothing."""
        if not stretch.host_ns or stretch.run_delay_ns is None:
            return []
        self._host_ns += stretch.host_ns
        self._delay_ns += stretch.run_delay_ns
        if self._host_ns < _JUDGED_NS:
            return []
        share, self._host_ns, self._delay_ns = self._delay_ns / self._host_ns, 0, 0
        state = self._state(share)
        if state is None:
            return []
        self._told = None if state == ENDS else share
        text = f"{self._who}'s training thread waits {percent(share)} of the time for a CPU"
        evidence = {"cpu_wait_share": share, "limit_share": SHORT.value}
        return [FindingRecord("host_short_of_cpu", state, text, share, "share", self._who, evidence=evidence)]

    def _state(self, share: float) -> str | None:
        if self._told is None:
            return BEGINS if share > SHORT.value else None
        if share < SHORT.value / 2:
            return ENDS
        return WORSENS if share >= 2 * self._told else None


def merged(stretches: Iterable[HostStretch]) -> HostStretch:
    """Stretches of one rank, in their order, as one."""
    known = [each for each in stretches if each.host_ns is not None]
    if not known:
        return HostStretch()

    def values(name: str) -> list[int]:
        return [value for each in known if (value := getattr(each, name)) is not None]

    sums = {name: sum(values(name)) if values(name) else None for name in ("host_ns", *_GROWING)}
    least_bytes = min(values("memory_available_bytes"), default=None)
    last = known[-1]
    return HostStretch(
        cores=last.cores,
        memory_available_bytes=least_bytes,
        cpu_limit_milli=last.cpu_limit_milli,
        **sums,
    )


class HostWindow:
    """Hands each reading to the stretch of training it was made in, in bounded memory."""

    def __init__(self) -> None:
        self._waiting: deque[HostRecord] = deque(maxlen=_MAX_WAITING)
        self._from: HostRecord | None = None
        self._to: HostRecord | None = None
        self._least_bytes: int | None = None

    def add(self, reading: HostRecord) -> None:
        """The next reading, in the order of time."""
        self._waiting.append(reading)

    def advance(self, end_ns: int) -> None:
        """The stretch has come to `end_ns`: takes in what was read until then."""
        while self._waiting and self._waiting[0].at_ns <= end_ns:
            reading = self._waiting.popleft()
            if self._from is None:
                self._from = reading
                continue
            self._to = reading
            if reading.memory_available_bytes is not None:
                known = (self._least_bytes, reading.memory_available_bytes)
                self._least_bytes = min(value for value in known if value is not None)

    def close(self) -> HostStretch:
        """The stretch ends; the next one begins."""
        first, last, least_bytes = self._from, self._to, self._least_bytes
        self._from, self._to, self._least_bytes = last or first, None, None
        if first is None or last is None:
            return HostStretch()
        grown = {name: _growth(first, last, name) for name in _GROWING}
        return HostStretch(
            host_ns=last.at_ns - first.at_ns,
            cores=last.cores,
            memory_available_bytes=least_bytes,
            cpu_limit_milli=last.cpu_limit_milli,
            **grown,
        )


def _growth(first: HostRecord, last: HostRecord, name: str) -> int | None:
    """None where one is not known, or the counter began anew."""
    before, after = getattr(first, name), getattr(last, name)
    return None if before is None or after is None or after < before else after - before
