"""A run's records folded into its summary. The writer and the report share it, so the two cannot differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.spine.clock import NS_PER_S, Anchor
from flagscale_perf.spine.figures import Rows
from flagscale_perf.spine.jsonl import finite
from flagscale_perf.spine.records import RUNNING, EventRecord, Record, RunEnd, RunHeader
from flagscale_perf.spine.session import Labels, file_names
from flagscale_perf.spine.units import as_ms, as_s
from flagscale_perf.training.columns import Intervals, highest_of
from flagscale_perf.training.facts import ONLY_IN_RUN_FILE, RunFacts
from flagscale_perf.training.figures import TABLE
from flagscale_perf.training.goodput import Goodput, SessionGoodput
from flagscale_perf.training.hardware import HardwareTotals
from flagscale_perf.training.ledger.fold import LedgerFold, late_share
from flagscale_perf.training.memory import MemoryTotals
from flagscale_perf.training.phases import PHASES, PhaseJoin, PhaseSums, StepPhases, Waits, share, total_of
from flagscale_perf.training.rank_records import CutsRecord
from flagscale_perf.training.ranks.totals import RankTotals
from flagscale_perf.training.rates import as_gb, highest, known_tokens, tflops_of_all, tflops_per_gpu
from flagscale_perf.training.records import HardwareRecord, IntervalRecord, Outcome, PhaseRecord, StepRecord
from flagscale_perf.training.samples import ThinnedRows
from flagscale_perf.training.summary.settled import SettledTotals
from flagscale_perf.training.summary.summary import (
    BubbleSummary,
    Failure,
    PhaseSummary,
    SessionInfo,
    Statistics,
    Summary,
    Totals,
)
from flagscale_perf.training.usual import UsualSteps
from flagscale_perf.training.utilisation import Scale, TrustedWork
from flagscale_perf.training.window import StepSums, end_mono_ns, skipped_iterations

MAX_FAILURES = 50
MAX_LEDGER_ROWS = 4096  # of units and steps: the writer takes half a second for the ledgers of so many
MAX_ROWS = 1600  # of `iteration_logs`: the file stays below a megabyte


Part = TypeVar("Part", bound=Any)


class _Course:
    """How the run went: its iterations, its end, and failures inside the monitor."""

    def __init__(self, header: RunHeader) -> None:
        self._header, self._labels = header, Labels(header)
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
        self.iterations = self.skipped = self.dropped = self.failure_count = 0
        self.failures: list[Failure] = []
        self._first: int | None = None
        self._last: int | None = None
        self._end_wall_ns, self._reason = header.start_wall_ns, RUNNING

    def step(self, step: StepRecord) -> None:
        if self._first is None:
            self._first = step.iteration - step.iterations + 1
        self.iterations += step.iterations
        self.skipped += skipped_iterations(step)
        self._reach(end_mono_ns(step), step.iteration)

    def usual(self, steps: UsualSteps) -> None:
        self.iterations += len(steps)
        self._reach(steps.ends_ns[-1], steps.columns["iteration"][-1])

    def _reach(self, end_ns: int, iteration: int) -> None:
        self._last, self._end_wall_ns = iteration, self._anchor.wall_of(end_ns)

    @property
    def has_ended(self) -> bool:
        return self._reason != RUNNING

    def event(self, event: EventRecord) -> None:
        self._end_wall_ns = self._anchor.wall_of(event.at_ns)
        if event.name == "failure":
            self.failure_count += 1
            if len(self.failures) < MAX_FAILURES:
                timestamp = self._labels.at(self._end_wall_ns).isoformat(sep=" ")
                self.failures.append(Failure(timestamp, event.iteration, event.text))

    def end(self, end: RunEnd) -> None:
        self._reason, self._end_wall_ns, self.dropped = end.reason, end.end_wall_ns, end.dropped

    def result(self, facts: RunFacts) -> SessionInfo:
        return SessionInfo(
            start_time=self._header.session_id[: len("20240129_103000")],
            end_time=self._labels.at(self._end_wall_ns).isoformat(),
            total_iterations=self.iterations,
            session_id=self._header.session_id,
            end_reason=self._reason,
            first_iteration=self._first,
            last_iteration=self._last,
            world_size=facts.world_size or None,
            flops_convention=facts.flops_convention or None,
        )


class _Steps:
    """Sums over steps.

    Attributes:
        rated: all but those of the warm-up.
        warmup: those of the warm-up.
        settled: of the rated ones, those after the start.
        trusted: work and time of the intervals whose MFU is possible.
        first_ns: the first iteration's time.
        peak_bytes: the highest memory peak.
    """

    def __init__(self, scale: Scale) -> None:
        self.rated, self.warmup = StepSums(), StepSums()
        self.settled, self.trusted = SettledTotals(scale), TrustedWork(scale)
        self.first_ns: int | None = None
        self.peak_bytes: int | None = None

    @property
    def judged(self) -> StepSums:
        settled = self.settled.sums(self.rated)
        return self.rated if settled is None else settled

    def add(self, step: StepRecord, phases: StepPhases | None) -> None:
        if not step.warmup:
            self.rated.add(step, phases)
            self.settled.add(step, phases)
            if step.outcome != Outcome.DATA_SKIPPED:
                self.trusted.add_step(step)
        else:
            self.warmup.add(step)
            if self.first_ns is None:
                self.first_ns = step.iteration_ns
        self.peak_bytes = highest(self.peak_bytes, step.memory_peak_bytes)

    def add_usual(self, steps: UsualSteps, waits: Waits) -> None:
        """Adds usual steps, except to `trusted`, which is summed interval by interval."""
        self.rated.add_usual(steps, waits)
        self.settled.add_usual(steps, waits)
        self.peak_bytes = highest(self.peak_bytes, highest_of(steps.columns["memory_peak_bytes"]))


class RunTotals:
    """Everything the summary says, as running sums: memory does not grow with the length of the run.

    Attributes:
        ranks: what is known of all ranks.
        ledgers: of the steps of ranks that were recorded side by side.
    """

    def __init__(self, header: RunHeader) -> None:
        """Raises ValueError for a header whose session id is none."""
        self._header, self._course = header, _Course(header)
        self._facts = RunFacts.of(header.facts)
        self._scale = Scale.of(self._facts)
        self._steps = _Steps(self._scale)
        self._phases = PhaseJoin(self._facts)
        self._figures = Rows(TABLE, header)
        self._rows: ThinnedRows[IntervalRecord] = ThinnedRows(MAX_ROWS, lambda row: row.iteration_max_ns or 0)
        self._memory, self._hardware = MemoryTotals(self._facts), HardwareTotals(self._scale)
        self._goodput = SessionGoodput(header)
        self.ranks = RankTotals(self._scale.world_size)
        self.ledgers = LedgerFold(self._facts)
        self._rates: tuple[float, float] | None = None  # lowest and highest of intervals
        self._has_unknown_rate = False

    @property
    def rated(self) -> StepSums:
        """Sums over the settled steps; over all but the first where the run has not settled."""
        return self._steps.judged

    def add(self, record: Record) -> None:
        """The next record of the run; a header adds nothing."""
        self._goodput.add(record)
        self.ranks.add(record)
        if isinstance(record, StepRecord):
            self._add_step(record)
        elif isinstance(record, PhaseRecord):
            self._phases.hold(record)
        elif isinstance(record, IntervalRecord):
            self._add_interval(record)
        elif isinstance(record, EventRecord):
            self._course.event(record)
        elif isinstance(record, HardwareRecord):
            self._hardware.add_reading(record)
        elif isinstance(record, CutsRecord):
            self.ledgers.add(record)
        elif isinstance(record, RunEnd):
            self._course.end(record)

    def _add_step(self, step: StepRecord) -> None:
        self._course.step(step)
        self._memory.add(step)
        self._steps.add(step, self._phases.take(step))

    @property
    def takes_many(self) -> bool:
        """Whether usual steps can be added together: the start is final."""
        return self._goodput.takes_many and self._steps.settled.is_final

    def add_usual(self, steps: UsualSteps, intervals: Intervals) -> None:
        """The next steps, and the intervals that end among them."""
        self._course.usual(steps)
        self._goodput.add_usual(steps)
        self._memory.add_usual(steps)
        self._steps.add_usual(steps, self._phases.waits(steps))
        self._steps.trusted.add_usual(steps, intervals)
        if not len(intervals):
            return
        self._rows.add_many([dur_ns or 0 for dur_ns in intervals["iteration_max_ns"]], intervals.one)
        self._hardware.add_intervals(intervals)
        self._course.dropped = intervals["dropped"][-1]
        settled = intervals.settled
        self._rate(settled["model_flops"], settled["iteration_ns"])

    def _add_interval(self, interval: IntervalRecord) -> None:
        self._rows.add(interval)
        self._hardware.add_intervals(Intervals.of([interval]))
        self._steps.trusted.close(interval)
        self._course.dropped = interval.dropped
        if not interval.warmup_only:
            self._rate([interval.model_flops], [interval.iteration_ns])

    def _rate(self, model_flops: Sequence[int | None], iteration_ns: Sequence[int]) -> None:
        rates = tflops_of_all(model_flops, iteration_ns, self._scale.world_size)
        known = [rate for rate in rates if rate is not None]
        self._has_unknown_rate |= len(known) < len(rates)
        if known:
            low, high = self._rates or (known[0], known[0])
            self._rates = min(low, *known), max(high, *known)

    def text(self) -> str:
        """The content of the summary's file."""
        return self.result().text()

    def result(self) -> Summary:
        """The summary so far; None for what is not known, and for NaN and infinities."""
        header, steps, phases = self._header, self._steps, self.rated.phases
        settled = _finite(steps.settled.result(steps.rated, not steps.trusted.suspect_intervals))
        return Summary(
            schema_version=header.schema_version,
            session_info=self._course.result(self._facts),
            final_statistics=_finite(self._statistics()),
            settled=settled,
            totals=_finite(self._totals(steps.rated.with_steps_of(steps.warmup))),
            phases=_finite(_phases_of(phases)),
            bubble=_finite(_bubble_of(phases)),
            ranks=self.ranks.result(),
            memory=_finite(self._memory.result()),
            hardware=_finite(self._hardware.result()),
            goodput=self._divided(settled.first_iteration or 0),
            dropped_records=self._course.dropped,
            failure_count=self._course.failure_count,
            failures=list(self._course.failures),
            run_facts={name: value for name, value in header.facts.items() if name not in ONLY_IN_RUN_FILE},
            config=header.config,
            files=_files_of(header),
            iteration_logs=[self._figures.summary(interval) for interval in self._rows.rows()],
        )

    def _divided(self, since: int) -> Goodput:
        """The goodput; what waited for late ranks is looked for once, at the end, and not for long."""
        goodput = self._goodput.result()
        if not self._course.has_ended or self.ledgers.rows > MAX_LEDGER_ROWS:
            return goodput
        share = late_share(self.ledgers.result(since))
        return goodput if share is None else goodput.with_late(share)

    def _statistics(self) -> Statistics:
        steps, sums = self._steps, self._steps.rated
        low, high = (None if self._has_unknown_rate else self._rates) or (None, None)
        mfu, hfu = steps.trusted.utilisation()
        return Statistics(
            **sums.rates(self._scale)._replace(mfu=mfu, hfu=hfu).in_summary(),
            avg_tflops=tflops_per_gpu(sums.model_flops, sums.iteration_ns, 1),
            max_tflops_per_gpu=high,
            min_tflops_per_gpu=low,
            intervals=steps.trusted.intervals,
            suspect_intervals=steps.trusted.suspect_intervals,
            peak_memory_gb=as_gb(steps.peak_bytes),
            min_iteration_ms=as_ms(sums.durations.minimum),
            max_iteration_ms=as_ms(sums.durations.maximum),
            first_iteration_ms=as_ms(steps.first_ns),
            self_cost_share=share(sums.self_ns, sums.iteration_ns),
        )

    def _totals(self, sums: StepSums) -> Totals:
        return Totals(
            train_steps=sums.steps,
            skipped_iterations=self._course.skipped,
            samples=sums.samples,
            tokens=known_tokens(sums.tokens, sums.samples),
            skipped_samples=sums.skipped_samples,
            model_flops=sums.model_flops,
            hardware_flops=sums.hardware_flops,
            train_s=sums.iteration_ns / NS_PER_S,
            eval_s=sums.eval_ns / NS_PER_S,
            checkpoint_s=sums.checkpoint_ns / NS_PER_S,
        )


def _finite(part: Part) -> Part:
    known: Part = replace(part, **finite(vars(part)))
    return known


def _files_of(header: RunHeader) -> dict[str, str]:
    """Names of the session's files by what they are, but for the logs that `perf_log_format` leaves out."""
    left_out = PerfConfig.of(header.config).left_out
    return {what: name for what, name in file_names(header.session_id).items() if what not in left_out}


def _phases_of(sums: PhaseSums) -> PhaseSummary:
    phases_ns = sums.by_name()
    return PhaseSummary(
        steps=sums.steps,
        total_s={name: as_s(phases_ns[name]) for name in PHASES},
        share={name: share(phases_ns[name], sums.iteration_ns) for name in PHASES},
    )


def _bubble_of(sums: PhaseSums) -> BubbleSummary:
    computing_ns = total_of(sums.by_name(), ("data_loading", "forward", "backward"))
    pipeline_ns = 0
    if computing_ns is not None and sums.bubble_ns is not None and sums.imbalance_ns is not None:
        pipeline_ns = computing_ns + sums.bubble_ns + sums.imbalance_ns
    return BubbleSummary(
        bubble_s=as_s(sums.bubble_ns),
        imbalance_s=as_s(sums.imbalance_ns),
        bubble_share=share(sums.bubble_ns, sums.iteration_ns),
        imbalance_share=share(sums.imbalance_ns, sums.iteration_ns),
        bubble_share_of_pipeline=share(sums.bubble_ns, pipeline_ns),
    )
