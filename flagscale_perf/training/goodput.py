"""Classifies a run's time: each nanosecond from rank 0's process start to its end is in one class."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

from flagscale_perf.spine.clock import NS_PER_S, Anchor
from flagscale_perf.spine.records import EventRecord, Record, RunEnd, RunHeader
from flagscale_perf.training.columns import are_parts, highest_of, total
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.rates import plus
from flagscale_perf.training.records import Outcome, PhaseRecord, StepRecord
from flagscale_perf.training.samples import Reservoir
from flagscale_perf.training.settled import Settling, is_judged
from flagscale_perf.training.usual import UsualSteps
from flagscale_perf.training.window import end_mono_ns

MAX_AGE_NS = 10 * 365 * 24 * 3600 * NS_PER_S  # no process begins its training later


@dataclass(frozen=True)
class Goodput:
    """Time by class, in nanoseconds. The classes add up to `wall_ns`.

    Attributes:
        wall_ns: all of it.
        startup_ns: from the process's start to the first iteration's start, and what that and the others of
            the start took longer than usual ones (`training.settled`).
        productive_ns: iterations that trained, less the data stall in them and the waiting for late ranks.
        evaluation_ns: between iterations.
        checkpoint_ns: between iterations, as far as training waited for it.
        data_stall_ns: loading data in iterations that trained; None where their phases were not all measured,
            or the host names no loading, and then it is in productive_ns.
        late_ns: in iterations that trained, what ranks that are late cost the others (`with_late`); None
            where the ranks were not recorded side by side, and then it is in productive_ns.
        lost_ns: iterations that did not train, and those that a later session had to do again.
        idle_ns: everything else: between sessions, an iteration that was never finished, what the job stood
            still, the way to the process's end.
    """

    wall_ns: int = 0
    startup_ns: int = 0
    productive_ns: int = 0
    evaluation_ns: int = 0
    checkpoint_ns: int = 0
    data_stall_ns: int | None = 0
    late_ns: int | None = 0
    lost_ns: int = 0
    idle_ns: int = 0

    @property
    def ettr(self) -> float | None:
        """Effective training time ratio: the productive share of the wall time, if any has passed."""
        return self.productive_ns / self.wall_ns if self.wall_ns > 0 else None

    def with_gap(self, gap_ns: int) -> Goodput:
        """The same with so much idle time before it."""
        return self + Goodput(wall_ns=gap_ns, idle_ns=gap_ns)

    def with_late(self, share: float | None) -> Goodput:
        """The same with this share of the iterations that trained spent waiting for late ranks; None where it
        is not known.
        """
        rest_ns = self.productive_ns + (self.late_ns or 0)
        late_ns = None
        if share is not None:
            late_ns = min(rest_ns, round(share * (rest_ns + (self.data_stall_ns or 0))))
        return replace(self, productive_ns=rest_ns - (late_ns or 0), late_ns=late_ns)

    def __add__(self, other: Goodput) -> Goodput:
        """Class by class; where a data stall or waiting is not known in one, that of both is not."""
        sums: dict[str, Any] = {
            field.name: plus(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)
        }
        for name in ("data_stall_ns", "late_ns"):
            if sums[name] is None:
                sums["productive_ns"] += (getattr(self, name) or 0) + (getattr(other, name) or 0)
        return Goodput(**sums)

    def as_dict(self) -> dict[str, Any]:
        """The block of the summary, in seconds; to the nanosecond the classes still add up to `wall_s`."""
        in_s = {
            name.removesuffix("ns") + "s": None if ns is None else ns / NS_PER_S
            for name, ns in asdict(self).items()
        }
        return in_s | {"ettr": self.ettr}


class _Judged(NamedTuple):
    """A step as far as it may belong to the start."""

    iteration_ns: int
    is_lost: bool
    loading_ns: int


class _Start:
    """The first iterations, which take longer than usual ones.

    Attributes:
        warmup: the first one; None before it has ended.
        is_warmup_lost: it did not train, or a later session did it again.
        usual: times of iterations that trained.
        settling: tells how many iterations the start has.
    """

    def __init__(self) -> None:
        self.warmup: StepRecord | None = None
        self.is_warmup_lost = False
        self.usual = Reservoir()
        self.settling = Settling()
        self._judged: list[_Judged] = []

    def lost(self, step: StepRecord) -> None:
        """A later iteration that did not train, or is done again."""
        self._hold(_Judged(step.iteration_ns, True, 0), step)

    def trained(self, step: StepRecord, loading_ns: int) -> None:
        """A later iteration that trained, and loaded data for so long."""
        self.usual.add(step.iteration_ns)
        self._hold(_Judged(step.iteration_ns, False, loading_ns), step)

    def _hold(self, judged: _Judged, step: StepRecord) -> None:
        if is_judged(step) and not self.settling.is_final:
            self.settling.add(step)
            self._judged.append(judged)

    def later_shares(self) -> tuple[int, int, int]:
        """The start's iterations after the first one: their time beyond usual ones, the part of it that
        trained (the rest is lost), and their data stall.
        """
        start = self.settling.result()
        held = self._judged[: start.steps]
        excess = [(max(0, step.iteration_ns - (start.usual_ns or 0)), step.is_lost) for step in held]
        trained_ns = sum(excess_ns for excess_ns, is_lost in excess if not is_lost)
        return sum(excess_ns for excess_ns, _ in excess), trained_ns, sum(step.loading_ns for step in held)

    def warmup_shares(self) -> tuple[int, int, int]:
        """The first iteration as start-up, productive, lost: it trains as long as the median later one."""
        step = self.warmup
        if step is None:
            return 0, 0, 0
        usual_ns = min(step.iteration_ns, self.usual.quantile(0.5) or 0)
        if self.is_warmup_lost:
            return step.iteration_ns - usual_ns, 0, usual_ns
        return step.iteration_ns - usual_ns, usual_ns, 0


class _Loading:
    """What iterations that trained spent on loading data.

    Attributes:
        phases: the last that were measured.
        stall_ns: sum; None where the phases of an iteration were not measured.
        is_named: a host that names loading does so in some iteration, not in every one.
    """

    def __init__(self) -> None:
        self.phases: PhaseRecord | None = None
        self.stall_ns: int | None = 0
        self.is_named = False

    def add(self, step: StepRecord) -> int | None:
        """How much of the step was loading data; None unless its own phases were measured."""
        loading_ns = self._part_of(step)
        self.stall_ns = plus(self.stall_ns, loading_ns)
        return loading_ns

    def _part_of(self, step: StepRecord) -> int | None:
        phases = self.phases
        if phases is None or phases.iteration != step.iteration or phases.other_ns is None:
            return None
        self.is_named |= phases.data_loading_ns is not None
        return min(max(phases.data_loading_ns or 0, 0), step.iteration_ns)

    def add_usual(self, steps: UsualSteps) -> None:
        """Takes steps together."""
        if steps.phases is None:
            self.stall_ns = None
        elif self.stall_ns is not None:
            parts_ns, wholes_ns = steps.phases["data_loading_ns"], steps.columns["iteration_ns"]
            self.is_named |= parts_ns.count(None) < len(parts_ns)
            if are_parts(parts_ns, wholes_ns):
                self.stall_ns += total(parts_ns) or 0
            elif self.is_named:
                loading = zip(parts_ns, wholes_ns, strict=True)
                self.stall_ns += sum(min(max(part_ns or 0, 0), whole_ns) for part_ns, whole_ns in loading)


class SessionGoodput:
    """Folds one session's records.

    Attributes:
        redone: iterations behind `kept_until` so far.
    """

    def __init__(
        self, header: RunHeader, kept_until: int | None = None, not_before_wall_ns: int | None = None
    ) -> None:
        """Args:
        header: of the session.
        kept_until: the last iteration that no later session did again; None for all.
        not_before_wall_ns: end of the session before; the process may have begun with that one.
        """
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
        start_ns = _process_start_ns(header)
        if not_before_wall_ns is not None:
            start_ns = max(start_ns, header.start_mono_ns + not_before_wall_ns - header.start_wall_ns)
        self._start_ns = min(start_ns, header.start_mono_ns)
        self._end_ns = self._trained_until_ns = header.start_mono_ns
        self._kept_until = kept_until
        self._has_ended, self._has_others = False, RunFacts.of(header.facts).world_size != 1
        self._start = _Start()
        self._before_ns: int | None = None  # until the first iteration began
        self._loading = _Loading()
        self._productive_ns = self._lost_ns = self._evaluation_ns = self._checkpoint_ns = 0
        self.redone = 0

    @property
    def start_wall_ns(self) -> int:
        """Unix time of the process's start."""
        return self._anchor.wall_of(self._start_ns)

    @property
    def end_wall_ns(self) -> int:
        """Unix time of the last thing that is known of the session."""
        return self._anchor.wall_of(self._end_ns)

    def add(self, record: Record) -> None:
        """The next record of the session."""
        if isinstance(record, StepRecord):
            self._add_step(record)
        elif isinstance(record, PhaseRecord):
            self._loading.phases = record
        elif isinstance(record, EventRecord) and not self._has_ended:
            self._end_ns = max(self._end_ns, record.at_ns)
        elif isinstance(record, RunEnd):
            # The training is over: what the writer records while it empties the ring takes none of its time.
            self._has_ended = True
            self._end_ns = max(
                self._trained_until_ns, self._anchor.mono_ns + record.end_wall_ns - self._anchor.wall_ns
            )

    def _add_step(self, step: StepRecord) -> None:
        self._trained_until_ns = max(self._trained_until_ns, end_mono_ns(step))
        self._end_ns = max(self._end_ns, self._trained_until_ns)
        self._evaluation_ns += step.eval_ns
        self._checkpoint_ns += step.checkpoint_ns
        is_redone = self._kept_until is not None and step.iteration > self._kept_until
        self.redone += step.iterations if is_redone else 0
        if self._before_ns is None and step.outcome != Outcome.DATA_SKIPPED:
            self._before_ns = max(0, step.start_ns - self._start_ns - self._lost_ns)
        is_lost = is_redone or step.outcome != Outcome.TRAINED
        if step.warmup and self._start.warmup is None:
            self._start.warmup, self._start.is_warmup_lost = step, is_lost
        elif is_lost:
            self._lost_ns += step.iteration_ns
            self._start.lost(step)
        else:
            self._productive_ns += step.iteration_ns
            self._start.trained(step, self._loading.add(step) or 0)

    @property
    def takes_many(self) -> bool:
        """Whether usual steps can be added together: the start is final."""
        return self._before_ns is not None and self._start.settling.is_final and self._kept_until is None

    def add_usual(self, steps: UsualSteps) -> None:
        """Takes steps together; only where `takes_many`."""
        iteration_ns = steps.columns["iteration_ns"]
        self._trained_until_ns = max(self._trained_until_ns, highest_of(steps.ends_ns))
        self._end_ns = max(self._end_ns, self._trained_until_ns)
        self._evaluation_ns += steps.sum("eval_ns")
        self._checkpoint_ns += steps.sum("checkpoint_ns")
        self._productive_ns += steps.sum("iteration_ns")
        self._start.usual.add_many(iteration_ns)
        self._loading.add_usual(steps)

    def result(self) -> Goodput:
        """The session so far; its classes add up to the wall time."""
        excess_ns, trained_ns, lost_ns = self._start.warmup_shares()
        more_ns, less_trained_ns, less_stall_ns = self._start.later_shares()
        excess_ns, trained_ns = excess_ns + more_ns, trained_ns - less_trained_ns
        lost_ns -= more_ns - less_trained_ns
        before_ns = self._before_ns
        if before_ns is None:  # as long as no iteration is finished, all is start-up
            before_ns = max(0, self._end_ns - self._start_ns - self._lost_ns)
        startup_ns = before_ns + excess_ns
        known = (
            startup_ns,
            self._productive_ns + trained_ns,
            self._evaluation_ns,
            self._checkpoint_ns,
            self._lost_ns + lost_ns,
        )
        wall_ns = max(self._end_ns - self._start_ns, sum(known))
        whole = Goodput(wall_ns, *known[:4], lost_ns=known[4], idle_ns=wall_ns - sum(known))
        is_named = self._loading.is_named or not self._productive_ns
        stall_ns = None
        if self._loading.stall_ns is not None and is_named:
            stall_ns = self._loading.stall_ns - less_stall_ns
        stalled = replace(whole, productive_ns=whole.productive_ns - (stall_ns or 0), data_stall_ns=stall_ns)
        return stalled.with_late(None if self._productive_ns and self._has_others else 0.0)


def _process_start_ns(header: RunHeader) -> int:
    """Its monotonic mark; the session's start where the file has none, or one that cannot be true."""
    started = RunFacts.of(header.facts).process_start_ns
    if started is not None and 0 <= header.start_mono_ns - started < MAX_AGE_NS:
        return started
    return header.start_mono_ns
