"""A run's records folded into its report in one pass and constant memory. What the summary has, too, is taken
from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flagscale_perf.analysis.run_file import Reading, RunFile, SkippedLine
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.spine.clock import NS_PER_S, Anchor
from flagscale_perf.spine.records import KILLED, EventRecord, RunEnd, RunHeader, kind_of
from flagscale_perf.spine.session import labels_of
from flagscale_perf.spine.units import as_s
from flagscale_perf.training.analysis.findings.anatomy import anatomy_of
from flagscale_perf.training.analysis.findings.case import TrainingCase
from flagscale_perf.training.analysis.findings.findings import find
from flagscale_perf.training.analysis.findings.signals import Signals
from flagscale_perf.training.analysis.ledgers import table_of
from flagscale_perf.training.analysis.overview import overview_of
from flagscale_perf.training.analysis.ranks import RankMatrix, stragglers_of
from flagscale_perf.training.analysis.report import Figures, TrainingReport
from flagscale_perf.training.analysis.tables import (
    GoodputBar,
    GoodputPart,
    Happening,
    Memory,
    Monitor,
    Phase,
    Phases,
)
from flagscale_perf.training.analysis.trend import TrendTotals
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.goodput import Goodput
from flagscale_perf.training.ledger.fold import LedgerFold
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.rank_records import CutsRecord, RanksRecord
from flagscale_perf.training.records import IntervalRecord, PhaseRecord, Record, StepRecord
from flagscale_perf.training.summary.summary import RUNNING, Summary
from flagscale_perf.training.summary.totals import RunTotals
from flagscale_perf.training.utilisation import Scale

MAX_EVENTS = 50  # of a name, and names: the monitor itself has a dozen of them
OTHER_EVENTS = "other"
MS_PER_S = 1000
_CLASSES = {
    "startup": "start-up",
    "productive": "productive",
    "evaluation": "evaluation",
    "checkpoint": "checkpoint",
    "data_stall": "data stall",
    "lost": "lost",
    "idle": "idle, other",
}


def read_report(path: Path) -> TrainingReport:
    """The report of one run file. Raises PerfError if it is none.

    A run that never wrote its end is "running" while a writer holds the file, else "killed".
    """
    run, fold = _folded(path)
    skipped = [SkippedLine(bad.number, bad.reason) for bad in run.bad_lines]
    reading = Reading(str(path), fold.records(), run.skipped, skipped)
    return fold.report(reading, fold.end is not None or run.is_live())


def read_summary(path: Path) -> Summary:
    """What `perf_summary_*.json` says, of one run file; as `read_report`."""
    run, fold = _folded(path)
    return fold.summary(fold.end is not None or run.is_live())


def _folded(path: Path) -> tuple[RunFile, RunFold]:
    run = RunFile(path)
    fold = RunFold(run.header)
    for record in run:
        fold.add(record)
    return run, fold


class RunFold:
    """Folds the records of one run; a report can be had at any time.

    Attributes:
        end: the run's last record; None before it.
    """

    def __init__(self, header: RunHeader) -> None:
        """Raises PerfError for a header whose session id is none."""
        self._labels, self._totals = labels_of(header), RunTotals(header)
        self.end: RunEnd | None = None
        self._header = header
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
        self._trend, self._ranks, self._signals = TrendTotals(header), RankMatrix(), Signals()
        self._ledgers = LedgerFold()
        self._counts: Counter[type[Record]] = Counter()
        self._events: list[EventRecord] = []
        self._event_counts: Counter[str] = Counter()
        self._last_iteration: int | None = None
        self._also: dict[type[Record], Callable[[Any], None]] = {
            StepRecord: self._add_step,
            PhaseRecord: self._signals.hold,
            IntervalRecord: self._add_interval,
            EventRecord: self._add_event,
            RanksRecord: self._ranks.add,
            CutsRecord: self._ledgers.add,
            RunEnd: self._add_end,
        }

    def add(self, record: Record) -> None:
        """The next record."""
        kind = type(record)
        self._counts[kind] += 1
        self._totals.add(record)
        add_also = self._also.get(kind)
        if add_also is not None:
            add_also(record)

    def records(self) -> dict[str, int]:
        """How many of each kind so far."""
        return {kind_of(kind): count for kind, count in self._counts.items()}

    def summary(self, is_live: bool) -> Summary:
        """The run so far; without an end it is "running" or, where it does not live any more, "killed"."""
        summary = self._totals.result()
        was_killed = summary.session_info.end_reason == RUNNING and not is_live
        return summary.ended(KILLED) if was_killed else summary

    def report(self, reading: Reading, is_live: bool) -> TrainingReport:
        """The run so far, and what holds it back; `is_live` as for `summary`."""
        summary = self.summary(is_live)
        rated, since = self._totals.rated, summary.settled.first_iteration or 0
        ledgers = self._ledgers.result(since)
        report = TrainingReport(
            overview=overview_of(summary, self._at(self._header.start_wall_ns), self._totals.ranks.nodes()),
            findings=[],
            figures=_figures(summary),
            settled=summary.settled,
            trend=self._trend.result(self._signals.slow_steps),
            phases=_phases(summary),
            ranks=self._ranks.result(
                self._totals.ranks, Scale.of(RunFacts.of(self._header.facts)).world_size
            ),
            stragglers=stragglers_of(self._totals.ranks, self._last_iteration),
            ledgers=list(map(table_of, ledgers)),
            memory=_memory(summary),
            hardware=summary.hardware,
            goodput=goodput_bar(summary.goodput),
            monitor=self._monitor(summary),
            files=summary.files,
            reading=reading,
        )
        case = TrainingCase(
            report,
            self._signals,
            rated.steps,
            rated.iteration_ns / NS_PER_S,
            ledgers,
            anatomy_of(ledgers) or self._signals.anatomy(since),
            facts=RunFacts.of(self._header.facts),
            options=PerfConfig.of(self._header.config),
        )
        return find(case)

    def _add_step(self, step: StepRecord) -> None:
        self._last_iteration = step.iteration
        if self._signals.add_step(step):
            self._trend.mark_slow()

    def _add_interval(self, interval: IntervalRecord) -> None:
        self._signals.add_interval(interval)
        self._trend.add(interval)

    def _add_event(self, event: EventRecord) -> None:
        is_known = event.name in self._event_counts or len(self._event_counts) < MAX_EVENTS
        name = event.name if is_known else OTHER_EVENTS
        self._event_counts[name] += 1
        if is_known and self._event_counts[name] <= MAX_EVENTS:
            self._events.append(event)

    def _add_end(self, end: RunEnd) -> None:
        self.end = end

    def _at(self, wall_ns: int) -> str:
        return self._labels.at(wall_ns).isoformat(sep=" ")

    def _monitor(self, summary: Summary) -> Monitor:
        events = [
            Happening(event.name, event.iteration, self._at(self._anchor.wall_of(event.at_ns)), event.text)
            for event in self._events
        ]
        return Monitor(
            self_cost_share=summary.final_statistics.self_cost_share,
            dropped_records=summary.dropped_records,
            failure_count=summary.failure_count,
            events=events,
            event_counts=dict(self._event_counts),
        )


def _figures(summary: Summary) -> Figures:
    statistics, totals = summary.final_statistics, summary.totals
    return Figures(
        tflops_per_gpu=statistics.avg_tflops_per_gpu,
        min_tflops_per_gpu=statistics.min_tflops_per_gpu,
        max_tflops_per_gpu=statistics.max_tflops_per_gpu,
        mfu=statistics.avg_mfu,
        hfu=statistics.avg_hfu,
        suspect_intervals=statistics.suspect_intervals,
        tokens_per_s=statistics.avg_throughput_tokens,
        samples_per_s=statistics.avg_throughput_samples,
        iteration_ms=statistics.avg_iteration_ms,
        p50_ms=statistics.p50_iteration_ms,
        p95_ms=statistics.p95_iteration_ms,
        max_ms=statistics.max_iteration_ms,
        first_iteration_ms=statistics.first_iteration_ms,
        train_s=totals.train_s,
        eval_s=totals.eval_s,
        checkpoint_s=totals.checkpoint_s,
        samples=totals.samples,
        skipped_samples=totals.skipped_samples,
        tokens=totals.tokens,
        model_flops=totals.model_flops,
        hardware_flops=totals.hardware_flops,
    )


def _phases(summary: Summary) -> Phases:
    phases, steps = summary.phases, summary.phases.steps
    rows = [
        Phase(
            name,
            total_s,
            phases.share[name],
            None if total_s is None or not steps else total_s / steps * MS_PER_S,
        )
        for name in PHASES
        for total_s in [phases.total_s[name]]
    ]
    return Phases(steps, rows if steps else [], **vars(summary.bubble))


def _memory(summary: Summary) -> Memory:
    peak_gb, device_gb = summary.final_statistics.peak_memory_gb, summary.memory.device_gb
    peak_share = None if peak_gb is None or not device_gb else peak_gb / device_gb
    return Memory(peak_gb=peak_gb, peak_share=peak_share, **vars(summary.memory))


def goodput_bar(goodput: Goodput) -> GoodputBar:
    """Its classes in seconds and as shares of the wall time."""
    wall_s = goodput.wall_ns / NS_PER_S
    durations_s = {name: as_s(getattr(goodput, f"{name}_ns")) for name in _CLASSES}
    parts = [
        GoodputPart(name, _CLASSES[name], dur_s, None if dur_s is None or not wall_s else dur_s / wall_s)
        for name, dur_s in durations_s.items()
    ]
    return GoodputBar(wall_s, parts, goodput.ettr)
