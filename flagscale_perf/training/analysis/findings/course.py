"""The whole run in a bounded number of stretches, each the intervals of some iterations added up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.records import IntervalRecord
from flagscale_perf.training.sample import Step

MAX_STRETCHES = 1024
_BLOCK = 256  # intervals that are added up together
_SUMS = tuple(map(attrgetter, ("steps", "iteration_ns", "samples", "tokens")))
_EVAL, _CHECKPOINT, _HOST = map(attrgetter, ("eval_ns", "checkpoint_ns", "host_ns"))
_WAITS = tuple(map(attrgetter, ("run_delay_ns", "cpu_stall_ns", "memory_stall_ns", "io_stall_ns")))


@dataclass
class Stretch:
    """Intervals that follow one another.

    Attributes:
        iteration: the last one.
        end_wall_ns: Unix time of its end.
        steps, iteration_ns, samples, tokens: sums.
        model_flops, phases_ns: sums; None where an interval does not know them.
        pauses: of evaluations and of checkpoints, nanoseconds.
        host_ns, waits_ns: time between readings of the host, and what it waited meanwhile for its CPUs, ...
        clock_mhz: the lowest; None where it was not read.
    """

    iteration: int
    end_wall_ns: int
    steps: int
    iteration_ns: int
    samples: int
    tokens: int
    model_flops: int | None
    phases_ns: tuple[int | None, ...] | None
    pauses: tuple[int, int]
    host_ns: int
    waits_ns: tuple[int, ...]
    clock_mhz: int | None

    @classmethod
    def of(cls, intervals: Sequence[IntervalRecord]) -> Stretch:
        """One or more that have steps, under the number and the end of the last one."""
        flops = [one.model_flops for one in intervals]
        phases_ns = [one.phases_ns for one in intervals]
        clocks = [one.sm_clock_mhz for one in intervals if one.sm_clock_mhz is not None]
        steps, iteration_ns, samples, tokens = (sum(map(get, intervals)) for get in _SUMS)
        return cls(
            intervals[-1].iteration,
            intervals[-1].end_wall_ns,
            steps,
            iteration_ns,
            samples,
            tokens,
            None if None in flops else sum(filter(None, flops)),
            None if None in phases_ns else _added(list(filter(None, phases_ns))),
            (sum(map(_EVAL, intervals)), sum(map(_CHECKPOINT, intervals))),
            sum(filter(None, map(_HOST, intervals))),
            tuple(sum(filter(None, map(get, intervals))) for get in _WAITS),
            min(clocks, default=None),
        )

    def join(self, later: Stretch) -> Stretch:
        """The two added up, under the number and the end of the later one."""
        flops, clocks = (self.model_flops, later.model_flops), (self.clock_mhz, later.clock_mhz)
        phases = None
        if self.phases_ns is not None and later.phases_ns is not None:
            both = zip(self.phases_ns, later.phases_ns, strict=True)
            phases = tuple(None if one is other is None else (one or 0) + (other or 0) for one, other in both)
        return Stretch(
            later.iteration,
            later.end_wall_ns,
            self.steps + later.steps,
            self.iteration_ns + later.iteration_ns,
            self.samples + later.samples,
            self.tokens + later.tokens,
            None if flops[0] is None or flops[1] is None else flops[0] + flops[1],
            phases,
            (self.pauses[0] + later.pauses[0], self.pauses[1] + later.pauses[1]),
            self.host_ns + later.host_ns,
            tuple(one + other for one, other in zip(self.waits_ns, later.waits_ns, strict=True)),
            min((clock for clock in clocks if clock is not None), default=None),
        )

    def mean(self) -> Step:
        """A mean step of it, under the number of its last one."""
        count = self.steps
        phases = self.phases_ns
        return Step(
            self.iteration,
            self.iteration_ns // count,
            self.samples // count,
            self.tokens // count,
            None if self.model_flops is None else self.model_flops // count,
            None if phases is None else tuple(None if one is None else one // count for one in phases),
        )


class Course:
    """Folds intervals: one each, then two, four ... to a stretch, so that memory does not grow."""

    def __init__(self) -> None:
        self._stretches: list[Stretch] = []
        self._open: Stretch | None = None
        self._in_open, self._each = 0, 1
        self._waiting: list[IntervalRecord] = []

    def add(self, interval: IntervalRecord) -> None:
        """Takes the next one that has steps and is not warm-up."""
        self._waiting.append(interval)
        if len(self._waiting) < min(self._each, _BLOCK):
            return
        self._in_open += len(self._waiting)
        self._open, self._waiting = self._so_far(), []
        if self._in_open < self._each:
            return
        self._stretches += [self._open] if self._open else []
        self._open, self._in_open = None, 0
        if len(self._stretches) == MAX_STRETCHES:
            pairs = zip(self._stretches[::2], self._stretches[1::2], strict=True)
            self._stretches = [one.join(other) for one, other in pairs]
            self._each *= 2

    def since(self, iteration: int) -> Sequence[Stretch]:
        """The stretches from that iteration on."""
        last = self._so_far()
        known = [*self._stretches, *([] if last is None else [last])]
        return [one for one in known if one.iteration >= iteration]

    def _so_far(self) -> Stretch | None:
        """The stretch that is not full yet."""
        if not self._waiting:
            return self._open
        added = Stretch.of(self._waiting)
        return added if self._open is None else self._open.join(added)


def _added(phases_ns: Sequence[Mapping[str, int | None]]) -> tuple[int | None, ...]:
    columns = ([each.get(name) for each in phases_ns] for name in PHASES)
    known = (None if column.count(None) == len(column) else filter(None, column) for column in columns)
    return tuple(None if column is None else sum(column) for column in known)
