"""Readings of rank 0's device joined to the iterations they explain, and summed up over the run."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flagscale_perf.device.counters import POWER_MW
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.training.columns import Intervals, highest_of, known_total, total
from flagscale_perf.training.rates import highest, per_second
from flagscale_perf.training.records import HardwareRecord, IntervalRecord
from flagscale_perf.training.utilisation import Scale, Work

# Why a device's clocks are not higher. Caps make a step slow; the others were asked for.
CAPS = ("power", "temperature", "power brake", "hardware slowdown")
REASONS = (*CAPS, "idle", "application clocks", "sync boost", "display", "other")

MW_PER_W = 1000
_LAST = ("ecc_uncorrected", "pcie_generation", "pcie_width", "pcie_replays", "nvlinks_active")
MAX_WAITING = 4096  # readings kept for the iteration under way
READ = 0.8, 1.25  # of what was trained, so that it is what the counter has read: a reading ends a bit later


class Stretch(NamedTuple):
    """A device over a stretch of training; the fields are those of `IntervalRecord`."""

    energy_mj: int | None
    energy_ns: int | None
    power_mw: int | None
    sm_clock_mhz: int | None
    temperature_c: int | None
    throttle: str | None
    tensor_cycles: int | None = None
    tensor_ns: int | None = None


class Readings:
    """A summary of readings of a device, or of intervals of them; None for what was never read.

    Attributes:
        clock_mhz: the lowest.
        temperature_c: the highest.
        reasons: every one of `REASONS` that was named.
    """

    def __init__(self) -> None:
        self.clock_mhz: int | None = None
        self.temperature_c: int | None = None
        self.reasons: set[str] | None = None
        self._throttle: str | None = None  # of the one before: names are looked at where they change
        self._power_sum = self._power_count = 0

    def add(self, read: HardwareRecord) -> None:
        """Takes the next one."""
        if read.power_mw is not None:
            self._power_sum += read.power_mw
            self._power_count += 1
        self.clock_mhz = lowest(self.clock_mhz, read.sm_clock_mhz)
        self.temperature_c = highest(self.temperature_c, read.temperature_c)
        self._name(read.throttle)

    def add_many(self, read: Intervals) -> None:
        """Takes the next ones."""
        power = read["power_mw"]
        self._power_sum += known_total(power) or 0
        self._power_count += len(power) - power.count(None)
        clocks = [clock_mhz for clock_mhz in read["sm_clock_mhz"] if clock_mhz is not None]
        self.clock_mhz = lowest(self.clock_mhz, min(clocks, default=None))
        self.temperature_c = highest(self.temperature_c, highest_of(read["temperature_c"]))
        for throttle in dict.fromkeys(read["throttle"]):
            self._name(throttle)

    def _name(self, throttle: str | None) -> None:
        if throttle is not None and throttle != self._throttle:
            self._throttle = throttle
            self.reasons = (self.reasons or set()) | (reasons_in(throttle) & set(REASONS))

    @property
    def throttle(self) -> str | None:
        """The reasons as one text, as in `HardwareRecord`."""
        return None if self.reasons is None else ", ".join(sorted(self.reasons))

    @property
    def power_mw(self) -> float | None:
        """The mean of those that were read, in milliwatts."""
        return self._power_sum / self._power_count if self._power_count else None


class HardwareWindow:
    """Hands each reading to the stretch of training it was made in, in bounded memory."""

    def __init__(self) -> None:
        self._waiting: deque[HardwareRecord] = deque(maxlen=MAX_WAITING)
        self._energy_from: HardwareRecord | None = None
        self._clock_mhz: int | None = None  # of the reading before
        self._trained_from_ns = self._trained_to_ns = 0
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._energy_to: HardwareRecord | None = None
        self._read = Readings()
        self._tensor_cycles = self._tensor_ns = 0

    def add(self, reading: HardwareRecord) -> None:
        """The next reading, in the order of time."""
        self._waiting.append(reading)

    def advance(self, start_ns: int, end_ns: int, trained_ns: tuple[int, int] | None = None) -> None:
        """The stretch, begun at `start_ns`, has come to `end_ns`: takes in what was read until then.
        `trained_ns`: the step that has brought it there, without what follows; None if it is no such step.
        """
        from_ns, to_ns = trained_ns or (end_ns, end_ns)
        if from_ns != self._trained_to_ns:  # something else came between
            self._trained_from_ns = from_ns
        self._trained_to_ns = to_ns
        while self._waiting and self._waiting[0].at_ns <= end_ns:
            reading = self._waiting.popleft()
            if reading.at_ns >= start_ns:
                self._take_in(reading)
                self._take_tensor(reading)
            elif reading.energy_mj is not None:
                self._energy_from = reading
            self._clock_mhz = reading.sm_clock_mhz

    def close(self) -> Stretch:
        """The stretch ends; the next one begins."""
        energy_mj, energy_ns = _energy(self._energy_from, self._energy_to)
        read, power_mw = self._read, self._read.power_mw
        stretch = Stretch(
            energy_mj=energy_mj,
            energy_ns=energy_ns,
            power_mw=None if power_mw is None else round(power_mw),
            sm_clock_mhz=read.clock_mhz,
            temperature_c=read.temperature_c,
            throttle=read.throttle,
            tensor_cycles=self._tensor_cycles if self._tensor_ns else None,
            tensor_ns=self._tensor_ns or None,
        )
        self._energy_from = self._energy_to or self._energy_from
        self._begin_anew()
        return stretch

    def _take_in(self, reading: HardwareRecord) -> None:
        if reading.energy_mj is not None:
            if self._energy_from is None:
                self._energy_from = reading
            else:
                self._energy_to = reading
        self._read.add(reading)

    def _take_tensor(self, reading: HardwareRecord) -> None:
        ppm, dur_ns, clock_mhz = reading.tensor_ppm, reading.tensor_ns, reading.sm_clock_mhz
        if ppm is None or dur_ns is None or clock_mhz is None:
            return
        if (reading.processes or 0) > 1 or reading.at_ns > self._trained_to_ns:
            return
        if reading.at_ns - dur_ns < self._trained_from_ns:
            return
        twice_mhz = clock_mhz + (self._clock_mhz or clock_mhz)  # a clock is read at each end
        self._tensor_cycles += ppm * dur_ns * twice_mhz // (2 * NS_PER_S)
        self._tensor_ns += dur_ns


def _energy(first: HardwareRecord | None, last: HardwareRecord | None) -> tuple[int | None, int | None]:
    """Energy and time between two readings; None if the counter was reset or counts in another unit."""
    if first is None or last is None or first.energy_mj is None or last.energy_mj is None:
        return None, None
    energy_mj, dur_ns = last.energy_mj - first.energy_mj, last.at_ns - first.at_ns
    if dur_ns <= 0 or energy_mj * NS_PER_S // dur_ns not in POWER_MW:
        return None, None
    return energy_mj, dur_ns


@dataclass(frozen=True)
class HardwareSummary:
    """Counters of rank 0's device; `throttle` has every reason that was read. None for what was not.

    mfu_by_counter, mfu_by_formula: of what was trained, by `Counted`; counter_read_s: of that time, by the
    tensor cores' counter; max_processes: most that a reading found.
    """

    energy_j: float | None
    energy_read_s: float | None
    power_w: float | None
    tokens_per_joule: float | None
    joules_per_token: float | None
    min_sm_clock_mhz: int | None
    max_temperature_c: int | None
    throttle: list[str] | None
    ecc_uncorrected: int | None
    xid_readings: int | None
    pcie_generation: int | None
    pcie_width: int | None
    pcie_replays: int | None
    nvlinks_active: int | None
    mfu_by_counter: float | None
    mfu_by_formula: float | None
    counter_read_s: float | None
    max_processes: int | None


class HardwareTotals:
    """The run's readings as running sums."""

    def __init__(self, scale: Scale) -> None:
        """`scale`: of the run's devices."""
        self._scale = scale
        self._energy_mj = self._energy_ns = 0
        self._tokens = self._dur_ns = 0  # of the intervals whose power was read, and what they took of it
        self._spent = 0.0
        self._read = Readings()
        self._xids = 0
        self._last = HardwareRecord(at_ns=0)
        self._counted = Counted()
        self._processes: int | None = None

    def add_intervals(self, intervals: Intervals) -> None:
        """Takes the next ones: energy, power, clock, temperature, reasons, and what the counter has read."""
        energy = zip(intervals["energy_mj"], intervals["energy_ns"], strict=True)
        for energy_mj, energy_ns in energy:
            if energy_mj is not None and energy_ns is not None:
                self._energy_mj += energy_mj
                self._energy_ns += energy_ns
        self._read.add_many(intervals)
        trained = intervals.settled
        flops = total(trained["model_flops"]), total(trained["hardware_flops"])
        counted = known_total(trained["tensor_cycles"]), known_total(trained["tensor_ns"])
        self._counted = self._counted.plus(Work(total(trained["iteration_ns"]) or 0, *flops), *counted)
        power = powers_mw(trained)
        if power.count(None) == len(power):
            return
        for power_mw, tokens, dur_ns in zip(power, trained["tokens"], trained["iteration_ns"], strict=True):
            if power_mw is not None:
                self._tokens += tokens
                self._dur_ns += dur_ns
                self._spent += power_mw * dur_ns

    def add_reading(self, reading: HardwareRecord) -> None:
        """Takes the next reading: errors and links, of which the last counts."""
        self._last = reading
        self._xids += bool(reading.xid)
        self._processes = highest(self._processes, reading.processes)

    def result(self) -> HardwareSummary:
        """The readings so far. Tokens and joules are of the intervals whose power was read."""
        last, read, has_energy = self._last, self._read, self._energy_ns > 0
        power_mw = self._energy_mj * NS_PER_S / self._energy_ns if has_energy else read.power_mw
        spent_mw = self._spent / self._dur_ns if self._dur_ns else None
        by_counter, by_formula = self._counted.mfu(self._scale)
        efficiency = _tokens_per_joule(self._tokens, self._dur_ns, spent_mw, self._scale)
        return HardwareSummary(
            energy_j=self._energy_mj / MW_PER_W if has_energy else None,
            energy_read_s=self._energy_ns / NS_PER_S if has_energy else None,
            power_w=None if power_mw is None else power_mw / MW_PER_W,
            tokens_per_joule=efficiency,
            joules_per_token=1 / efficiency if efficiency else None,
            min_sm_clock_mhz=read.clock_mhz,
            max_temperature_c=read.temperature_c,
            throttle=None if read.reasons is None else sorted(read.reasons),
            **{name: getattr(last, name) for name in _LAST},
            xid_readings=self._xids if last.xid is not None else None,
            mfu_by_counter=by_counter,
            mfu_by_formula=by_formula,
            counter_read_s=self._counted.read_ns / NS_PER_S if self._counted.read_ns else None,
            max_processes=self._processes,
        )


class Counted(NamedTuple):
    """What was trained, and what the tensor cores' counter has read: active clocks, and for how long."""

    work: Work = Work()
    cycles: int = 0
    read_ns: int = 0

    def plus(self, work: Work, cycles: int | None, read_ns: int | None) -> Counted:
        """With one or several intervals more."""
        return Counted(self.work.plus(work), self.cycles + (cycles or 0), self.read_ns + (read_ns or 0))

    def mfu(self, scale: Scale) -> tuple[float | None, float | None]:
        """By counter and by formula; None for both where one is not known, or the counter has read much less
        or more than was trained. What is computed again, which it sees too, is taken off by the formula.
        """
        mfu, hfu = self.work.utilisation(scale)
        _, peak, per_clock = scale
        least_ns, most_ns = (part * self.work.elapsed_ns for part in READ)
        if not mfu or not hfu or not peak or not per_clock or not least_ns <= self.read_ns <= most_ns:
            return None, None
        return self.cycles * per_clock * NS_PER_S / self.read_ns / peak * mfu / hfu, mfu


def mfu_by_counter(interval: IntervalRecord, scale: Scale) -> float | None:
    """MFU of an interval by the counter of rank 0's device; None where that has not read about as much."""
    return Counted().plus(Work.of(interval), interval.tensor_cycles, interval.tensor_ns).mfu(scale)[0]


def mean_power_mw(interval: IntervalRecord) -> float | None:
    """Mean power of rank 0's device: by its energy counter, or else the mean of its readings."""
    return _power_mw(interval.energy_mj, interval.energy_ns, interval.power_mw)


def powers_mw(intervals: Intervals) -> Sequence[float | None]:
    """The same of each interval."""
    energy_mj, *others = (intervals[name] for name in ("energy_mj", "energy_ns", "power_mw"))
    has_counter = energy_mj.count(None) < len(energy_mj)
    return [*map(_power_mw, energy_mj, *others)] if has_counter else others[-1]


def _power_mw(energy_mj: int | None, energy_ns: int | None, power_mw: int | None) -> float | None:
    return energy_mj * NS_PER_S / energy_ns if energy_mj is not None and energy_ns else power_mw


def tokens_per_joule(interval: IntervalRecord, scale: Scale) -> float | None:
    """The share of one device in the tokens, for each joule of rank 0's device."""
    return _tokens_per_joule(interval.tokens, interval.iteration_ns, mean_power_mw(interval), scale)


def _tokens_per_joule(tokens: int, elapsed_ns: int, power_mw: float | None, scale: Scale) -> float | None:
    rate = per_second(tokens or None, elapsed_ns)  # none are trained, or they are not known
    if rate is None or not power_mw or power_mw < 0 or scale.world_size is None:
        return None
    return rate / scale.world_size / (power_mw / MW_PER_W)


def reasons_in(throttle: str) -> set[str]:
    """The names in a `HardwareRecord.throttle`; none in an empty one."""
    return set(filter(None, throttle.split(", ")))


def lowest(known: int | None, value: int | None) -> int | None:
    """The smaller of those that are known."""
    return value if known is None or (value is not None and value < known) else known
