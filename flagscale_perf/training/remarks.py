"""Findings that a person should see at once, made from a run's records as they arrive."""

from __future__ import annotations

from collections import deque

from flagscale_perf.spine.averages import median
from flagscale_perf.spine.limits import Limit
from flagscale_perf.spine.live import BEGINS, FindingRecord
from flagscale_perf.spine.records import Record
from flagscale_perf.spine.units import stretch
from flagscale_perf.training.clocks import capped_by, caps_in
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.host import CpuWatch
from flagscale_perf.training.memory import MemoryTotals
from flagscale_perf.training.records import HardwareRecord, IntervalRecord, StepRecord
from flagscale_perf.training.slowdown import SlowdownWatch

SLOW = Limit(
    1.1, "times", "ours: of the median interval before; means of several steps differ less than single steps"
)
RECENT = 64
MIN_RECENT = 3


class Watch:
    """Looks at records. Each trouble is reported when it begins, not while it lasts."""

    def __init__(self, facts: RunFacts) -> None:
        """`facts` of the run: its device's memory, and where training ends."""
        self._memory = MemoryTotals(facts)
        self._train_iters = facts.train_iters
        self._times_ns: deque[float] = deque(maxlen=RECENT)
        self._clocks_mhz: deque[int] = deque(maxlen=RECENT)
        self._is_slow = self._has_forecast = False
        self._ecc: int | None = None
        self._slowdown, self._cpu = SlowdownWatch(), CpuWatch("rank 0")

    def look(self, record: Record) -> list[FindingRecord]:
        """What the next record shows."""
        if isinstance(record, StepRecord):
            self._memory.add(record)
        elif isinstance(record, HardwareRecord):
            return self._errors(record)
        elif isinstance(record, IntervalRecord):
            slower = self._slowdown.add(record)
            found = [] if slower is None else [slower]
            return self._slowness(record) + found + self._forecast(record) + self._cpu.add(record)
        return []

    def _errors(self, reading: HardwareRecord) -> list[FindingRecord]:
        texts = device_errors(reading.xid, reading.ecc_uncorrected, self._ecc)
        if reading.ecc_uncorrected is not None:
            self._ecc = reading.ecc_uncorrected
        return [
            FindingRecord("hardware", BEGINS, f"rank 0's device: {text}", subject="rank 0") for text in texts
        ]

    def _slowness(self, interval: IntervalRecord) -> list[FindingRecord]:
        """A slow interval is worth a remark only where the device explains it by a capped clock."""
        if interval.warmup_only or not interval.steps:
            return []
        time_ns, clock_mhz = interval.iteration_ns / interval.steps, interval.sm_clock_mhz
        slower = time_ns / median(self._times_ns) if len(self._times_ns) >= MIN_RECENT else 0.0
        usual_mhz = median(self._clocks_mhz) if self._clocks_mhz else None
        self._times_ns.append(time_ns)
        if clock_mhz is not None:
            self._clocks_mhz.append(clock_mhz)
        was_slow, self._is_slow = self._is_slow, slower > SLOW.value
        caps = caps_in(interval.throttle, clock_mhz, usual_mhz)
        if was_slow or not self._is_slow or not caps:
            return []
        steps = stretch("step", interval.first_iteration, interval.iteration)
        percent = round((slower - 1) * 100)
        text = f"{steps} took {percent} % longer; observed: rank 0's {capped_by(caps)}"
        return [FindingRecord("slow", BEGINS, text, slower - 1, "share", evidence={"caps": caps})]

    def _forecast(self, interval: IntervalRecord) -> list[FindingRecord]:
        left = None if self._has_forecast else self._memory.steps_left()
        if left is None or (self._train_iters is not None and interval.iteration + left >= self._train_iters):
            return []
        self._has_forecast = True
        growth = "if its peak goes on growing like this"
        text = f"rank 0's device is out of memory in {left} steps at the latest {growth}"
        return [FindingRecord("memory", BEGINS, text, evidence={"steps_left": left})]


def device_errors(xid: int | None, ecc: int | None, ecc_before: int | None) -> list[str]:
    """The errors in a reading, one phrase each: an XID, and uncorrected memory errors that are new."""
    texts = [f"the driver reports XID {xid}"] if xid else []
    if ecc is not None and ecc_before is not None and ecc > ecc_before:
        texts.append(f"uncorrected memory errors have gone from {ecc_before} to {ecc}")
    return texts
