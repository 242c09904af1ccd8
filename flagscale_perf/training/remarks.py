"""Looks at a run's records as they come and says what a person should know at once."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from flagscale_perf.training.hardware import CAPS, reasons_in
from flagscale_perf.training.memory import MemoryTotals
from flagscale_perf.training.records import HardwareRecord, IntervalRecord, Record, StepRecord

SLOW = 1.1  # times the median of the intervals before
RECENT = 64
MIN_RECENT = 3


class Remark(NamedTuple):
    """Name and text of an `EventRecord`."""

    name: str
    text: str


class Watch:
    """Makes remarks about records. Each trouble is said when it begins, not while it lasts."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        """`facts` of the run header."""
        last = facts.get("train_iters")
        self._memory = MemoryTotals(facts)
        self._train_iters = last if isinstance(last, int) else None
        self._times_ns: deque[float] = deque(maxlen=RECENT)
        self._clocks_mhz: deque[int] = deque(maxlen=RECENT)
        self._is_slow = self._has_forecast = False
        self._ecc: int | None = None

    def look(self, record: Record) -> list[Remark]:
        """What is to be said of the next record."""
        if isinstance(record, StepRecord):
            self._memory.add(record)
        elif isinstance(record, HardwareRecord):
            return self._errors(record)
        elif isinstance(record, IntervalRecord):
            return self._slowness(record) + self._forecast(record)
        return []

    def _errors(self, reading: HardwareRecord) -> list[Remark]:
        remarks = (
            [Remark("hardware", f"rank 0's device: the driver reports XID {reading.xid}")]
            if reading.xid
            else []
        )
        ecc, before = reading.ecc_uncorrected, self._ecc
        if ecc is not None:
            self._ecc = ecc
            if before is not None and ecc > before:
                remarks.append(
                    Remark(
                        "hardware",
                        f"rank 0's device: uncorrected memory errors have gone from {before} to {ecc}",
                    )
                )
        return remarks

    def _slowness(self, interval: IntervalRecord) -> list[Remark]:
        if interval.warmup_only or not interval.steps:
            return []
        time_ns, clock_mhz = interval.iteration_ns / interval.steps, interval.sm_clock_mhz
        usual_ns = statistics.median(self._times_ns) if len(self._times_ns) >= MIN_RECENT else None
        usual_mhz = statistics.median(self._clocks_mhz) if self._clocks_mhz else None
        self._times_ns.append(time_ns)
        if clock_mhz is not None:
            self._clocks_mhz.append(clock_mhz)
        if usual_ns is None:
            return []
        was_slow, self._is_slow = self._is_slow, time_ns > SLOW * usual_ns
        caps = reasons_in(interval.throttle or "") & set(CAPS)
        # A device at its power limit says so all the time; it explains a slow step only if the clock has gone
        # down, too.
        is_lower = clock_mhz is None or usual_mhz is None or clock_mhz < usual_mhz
        if not self._is_slow or was_slow or not caps or not is_lower:
            return []
        first, last = interval.first_iteration, interval.iteration
        steps = f"step {last}" if first == last else f"steps {first} to {last}"
        slower = round((time_ns / usual_ns - 1) * 100)
        return [
            Remark("slow", f"{steps} {slower} % slow: rank 0, clock capped by {' and '.join(sorted(caps))}")
        ]

    def _forecast(self, interval: IntervalRecord) -> list[Remark]:
        left = None if self._has_forecast else self._memory.steps_left()
        if left is None or (self._train_iters is not None and interval.iteration + left >= self._train_iters):
            return []
        self._has_forecast = True
        return [
            Remark(
                "memory",
                f"rank 0's device is out of memory in {left} steps at the latest if its peak goes on growing like this",
            )
        ]
