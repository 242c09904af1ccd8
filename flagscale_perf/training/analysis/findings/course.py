"""The whole run in a bounded number of stretches, each the intervals of some iterations added up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.records import IntervalRecord
from flagscale_perf.training.sample import Step

MAX_STRETCHES = 1024
_BLOCK = 256  # intervals that are added up together
PAUSES, WAITS = (
    ("eval_ns", "checkpoint_ns"),
    ("run_delay_ns", "cpu_stall_ns", "memory_stall_ns", "io_stall_ns"),
)
_SUMMED = tuple(map(attrgetter, ("steps", "iteration_ns", "samples", "tokens", *PAUSES)))
_READ = tuple(map(attrgetter, ("host_ns", *WAITS, "cpu_periods", "cpu_throttled_periods")))  # not everywhere


class Stretch(NamedTuple):
    """Intervals that follow one another, or one. Its fields are called as theirs, so that stretches add up
    like intervals.

    Attributes:
        iteration, end_wall_ns: of the last one.
        steps, iteration_ns, samples, tokens, eval_ns, checkpoint_ns: sums.
        host_ns, run_delay_ns, cpu_stall_ns, memory_stall_ns, io_stall_ns, cpu_periods,
            cpu_throttled_periods: sums over those that know them.
        cores, cpu_limit_milli: the last that were read.
        model_flops, phases_ns: sums; None where an interval does not know them.
        sm_clock_mhz: the lowest; None where it was not read.
    """

    iteration: int
    end_wall_ns: int
    steps: int
    iteration_ns: int
    samples: int
    tokens: int
    eval_ns: int
    checkpoint_ns: int
    host_ns: int
    run_delay_ns: int
    cpu_stall_ns: int
    memory_stall_ns: int
    io_stall_ns: int
    cpu_periods: int
    cpu_throttled_periods: int
    cores: int | None
    cpu_limit_milli: int | None
    model_flops: int | None
    phases_ns: Mapping[str, int | None] | None
    sm_clock_mhz: int | None

    @classmethod
    def of(cls, parts: Sequence[Part]) -> Stretch:
        """Those that have steps, under the number and the end of the last one; nothing, of none."""
        flops = [one.model_flops for one in parts]
        phases_ns = [one.phases_ns for one in parts]
        clocks = [one.sm_clock_mhz for one in parts if one.sm_clock_mhz is not None]
        return cls(
            parts[-1].iteration if parts else 0,
            parts[-1].end_wall_ns if parts else 0,
            *(sum(map(get, parts)) for get in _SUMMED),
            *(sum(filter(None, map(get, parts))) for get in _READ),
            cores=next((one.cores for one in reversed(parts) if one.cores), None),
            cpu_limit_milli=next(
                (one.cpu_limit_milli for one in reversed(parts) if one.cpu_limit_milli), None
            ),
            model_flops=None if None in flops else sum(filter(None, flops)),
            phases_ns=None if None in phases_ns else _added(list(filter(None, phases_ns))),
            sm_clock_mhz=min(clocks, default=None),
        )

    def waiting(self, wait_ns: int) -> float:
        """What the host waited, as a share of the time between its readings; 0 where it was not read."""
        return min(1.0, wait_ns / self.host_ns) if self.host_ns else 0.0

    def mean(self) -> Step:
        """A mean step of it, under the number of its last one."""
        count, phases_ns = self.steps, self.phases_ns
        known = None if phases_ns is None else [phases_ns[name] for name in PHASES]
        return Step(
            self.iteration,
            self.iteration_ns // count,
            self.samples // count,
            self.tokens // count,
            None if self.model_flops is None else self.model_flops // count,
            None if known is None else tuple(None if one is None else one // count for one in known),
        )


Part: TypeAlias = IntervalRecord | Stretch


class Course:
    """Folds intervals: one each, then two, four ... to a stretch, so that memory does not grow."""

    def __init__(self) -> None:
        self._stretches: list[Stretch] = []
        self._open: list[Part] = []  # of the stretch that is not full yet
        self._in_open, self._each = 0, 1

    def add(self, interval: IntervalRecord) -> None:
        """Takes the next one that has steps and is not warm-up."""
        self._open.append(interval)
        self._in_open += 1
        if self._in_open == self._each:
            self._stretches.append(Stretch.of(self._open))
            self._open, self._in_open = [], 0
        elif len(self._open) == _BLOCK:
            self._open = [Stretch.of(self._open)]
        if len(self._stretches) == MAX_STRETCHES:
            pairs = zip(self._stretches[::2], self._stretches[1::2], strict=True)
            self._stretches = list(map(Stretch.of, pairs))
            self._each *= 2

    def since(self, iteration: int) -> Sequence[Stretch]:
        """The stretches from that iteration on."""
        last = [Stretch.of(self._open)] if self._open else []
        return [one for one in [*self._stretches, *last] if one.iteration >= iteration]


def _added(phases_ns: Sequence[Mapping[str, int | None]]) -> dict[str, int | None]:
    columns = {name: [each.get(name) for each in phases_ns] for name in PHASES}
    return {
        name: None if column.count(None) == len(column) else sum(filter(None, column))
        for name, column in columns.items()
    }
