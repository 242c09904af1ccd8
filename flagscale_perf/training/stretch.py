"""Intervals of a training added up, for what looks at a long run in a bounded number of stretches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.records import IntervalRecord
from flagscale_perf.training.sample import Step

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
        last = parts[-1] if parts else None
        known = (
            last.iteration if last else 0,
            last.end_wall_ns if last else 0,
            *(sum(map(get, parts)) for get in _SUMMED),
            *(sum(filter(None, map(get, parts))) for get in _READ),
            next(reversed(_read(parts, "cores")), None),
            next(reversed(_read(parts, "cpu_limit_milli")), None),
            None if None in flops else sum(filter(None, flops)),
            None if None in phases_ns else _added(list(filter(None, phases_ns))),
            min(_read(parts, "sm_clock_mhz"), default=None),
        )
        return cls._make(known)

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


def _read(parts: Sequence[Part], name: str) -> list[int]:
    return [value for one in parts if (value := getattr(one, name)) is not None]


def _added(phases_ns: Sequence[Mapping[str, int | None]]) -> dict[str, int | None]:
    columns = {name: [each.get(name) for each in phases_ns] for name in PHASES}
    return {
        name: None if column.count(None) == len(column) else sum(filter(None, column))
        for name, column in columns.items()
    }
