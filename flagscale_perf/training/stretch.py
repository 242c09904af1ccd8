"""Intervals of a training added up, for what looks at a long run in a bounded number of stretches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from flagscale_perf.spine.mappings import Mappings
from flagscale_perf.training.columns import Intervals, known_total, total
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.records import IntervalRecord
from flagscale_perf.training.sample import Step

PAUSES, WAITS = (
    ("eval_ns", "checkpoint_ns"),
    ("run_delay_ns", "cpu_stall_ns", "memory_stall_ns", "io_stall_ns"),
)
_SUMMED = ("steps", "iteration_ns", "samples", "tokens", *PAUSES)
_READ = ("host_ns", *WAITS, "cpu_periods", "cpu_throttled_periods")  # where the host has them


class Stretch(NamedTuple):
    """One or more intervals that follow one another. Its fields have the names of theirs, so that stretches
    add up like intervals.

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
    def of(cls, parts: Sequence[Part] | Intervals) -> Stretch:
        """The sum of parts that have steps, under the number and the end of the last one; zeros of none."""

        def column(name: str) -> Sequence[Any]:
            return parts[name] if isinstance(parts, Intervals) else [getattr(one, name) for one in parts]

        def read(name: str) -> list[int]:
            return [value for value in column(name) if value is not None]

        phases_ns = column("phases_ns")
        known = (
            column("iteration")[-1] if len(parts) else 0,
            column("end_wall_ns")[-1] if len(parts) else 0,
            *(sum(column(name)) for name in _SUMMED),
            *(known_total(column(name)) or 0 for name in _READ),
            next(reversed(read("cores")), None),
            next(reversed(read("cpu_limit_milli")), None),
            total(column("model_flops")),
            None if None in phases_ns else _added(phases_ns),
            min(read("sm_clock_mhz"), default=None),
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


def _added(phases_ns: Sequence[Mapping[str, int | None]]) -> dict[str, int | None]:
    if isinstance(phases_ns, Mappings):
        own = phases_ns.columns
        return {name: known_total(own[name]) if name in own else None for name in PHASES}
    try:
        rows = [*map(itemgetter(*PHASES), phases_ns)]
    except KeyError:  # in files of other versions
        rows = [tuple(map(each.get, PHASES)) for each in phases_ns]
    columns = zip(*rows, strict=True) if rows else [(None,)] * len(PHASES)
    return dict(zip(PHASES, map(known_total, columns), strict=True))
