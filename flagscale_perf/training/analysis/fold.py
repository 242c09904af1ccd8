"""A run's records folded into its report in one pass and constant memory. What the summary has, too, is taken
from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from flagscale_perf.analysis.replays import Doubt, Replays
from flagscale_perf.analysis.session import Session
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.spine.clock import NS_PER_S, Anchor
from flagscale_perf.spine.live import FindingRecord
from flagscale_perf.spine.records import KILLED, NOT_KNOWN, EventRecord, Record, RunHeader
from flagscale_perf.spine.session import labels_of
from flagscale_perf.spine.units import as_s
from flagscale_perf.store.decoder import Chunk
from flagscale_perf.store.run_file import Reading
from flagscale_perf.training.analysis.asked import Asked, doubt_of
from flagscale_perf.training.analysis.best import best
from flagscale_perf.training.analysis.captured import CapturedFold
from flagscale_perf.training.analysis.findings.anatomy import anatomy_of
from flagscale_perf.training.analysis.findings.case import TrainingCase
from flagscale_perf.training.analysis.findings.findings import find
from flagscale_perf.training.analysis.findings.signals import Signals
from flagscale_perf.training.analysis.ledgers import path_of
from flagscale_perf.training.analysis.overview import overview_of, with_share
from flagscale_perf.training.analysis.ranks import RankMatrix, stragglers_of
from flagscale_perf.training.analysis.replayed import ReplayFold, priced_ledger
from flagscale_perf.training.analysis.report import Figures, TrainingReport
from flagscale_perf.training.analysis.tables import (
    CapturedRanks,
    GoodputBar,
    GoodputPart,
    Happening,
    Memory,
    Monitor,
    Phase,
    Phases,
    phases_of,
)
from flagscale_perf.training.analysis.trend import TrendTotals
from flagscale_perf.training.analysis.waiting import Waiting
from flagscale_perf.training.columns import Intervals
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.goodput import Goodput
from flagscale_perf.training.host import HostRecord
from flagscale_perf.training.ledger.fold import late_share
from flagscale_perf.training.ledger.ledger import Ledger
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.rank_records import CutsRecord, NodeRecord, RanksRecord
from flagscale_perf.training.rates import SUMMARY_NAMES
from flagscale_perf.training.records import (
    CapturedRecord,
    CaptureRecord,
    HardwareRecord,
    IntervalRecord,
    PhaseRecord,
    StandstillRecord,
    StepRecord,
)
from flagscale_perf.training.summary.summary import Summary
from flagscale_perf.training.summary.totals import RunTotals
from flagscale_perf.training.usual import UsualSteps
from flagscale_perf.training.utilisation import Scale
from flagscale_perf.training.window import StepSums

MAX_CLOCKS = 16  # machines: the file is read again for them
MAX_EVENTS = 50  # of a name, and names: the monitor itself has a dozen of them
OTHER_EVENTS = "other"
TOGETHER = 1024  # records that are taken together: as many as stay in a processor's cache
FEW = 64  # records: so few are taken one by one where a step of them is unusual
MS_PER_S = 1000
# No step, and nothing that ends one: what they say is the same wherever they stand among steps.
BESIDE = frozenset(
    {HardwareRecord, HostRecord, RanksRecord, CutsRecord, NodeRecord, CaptureRecord, CapturedRecord}
)
_CLASSES = {
    "startup": "start-up",
    "productive": "productive",
    "evaluation": "evaluation",
    "checkpoint": "checkpoint",
    "data_stall": "data (rank 0)",
    "late": "late ranks",
    "lost": "lost",
    "idle": "idle, other",
}


def read_report(session: Session, with_unjudged: bool = True) -> TrainingReport:
    """The report of a session, `with_unjudged` or without what could not be judged. Raises PerfError if the
    session cannot be read.

    A run that never wrote its end is "running" or "killed" where that can be known, else "not known".
    """
    fold = folded(session)
    report = fold.report(session.reading, session.state, with_unjudged)
    if report.captured is None or not 1 < len(report.overview.nodes) <= MAX_CLOCKS:
        return report
    return replace(report, captured=replace(report.captured, clocks=session.clocks.lines(with_others=True)))


def read_summary(session: Session) -> Summary:
    """What `perf_summary_*.json` says; as `read_report`."""
    return folded(session).summary(session.state)


def folded(session: Session) -> RunFold:
    """All records of a session. Raises PerfError if it cannot be read."""
    fold = RunFold(session.header)
    for part in session.chunks({StepRecord, PhaseRecord, IntervalRecord}, BESIDE, [fold]):
        if isinstance(part, Chunk):
            fold.add_many(part)
        else:
            fold.add(part)
    if fold.has_captured:
        fold.doubt = doubt_of(session)
    return fold


class RunFold:
    """Folds the records of one run; a report can be had at any time.

    Attributes:
        doubt: what is known of predictions for it.
    """

    def __init__(self, header: RunHeader) -> None:
        """Raises PerfError for a header whose session id is none."""
        self._labels, self._totals = labels_of(header), RunTotals(header)
        self._header = header
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
        self._trend, self._ranks, self._signals = TrendTotals(header), RankMatrix(), Signals()
        self._replayed = ReplayFold(RunFacts.of(header.facts))
        self._captured = CapturedFold(RunFacts.of(header.facts))
        self.doubt = Doubt()
        self._events: list[EventRecord] = []
        self._event_counts: Counter[str] = Counter()
        self._last_iteration: int | None = None
        self._waiting = Waiting()
        self._also: dict[type[Record], Callable[[Any], None]] = {
            StepRecord: self._add_step,
            PhaseRecord: self._signals.hold,
            IntervalRecord: self._add_interval,
            StandstillRecord: self._signals.add_standstill,
            EventRecord: self._add_event,
            FindingRecord: self._signals.add_finding,
            RanksRecord: self._ranks.add,
            NodeRecord: self._add_captured,
            CaptureRecord: self._add_captured,
            CapturedRecord: self._add_captured,
        }

    def add(self, record: Record) -> None:
        """Takes the next record, in the order of the file."""
        if self._waiting.types and type(record) not in BESIDE:
            self._take(self._waiting.take())
        self._add(record)

    def _add(self, record: Record) -> None:
        self._totals.add(record)
        waiting = self._waiting
        waiting.holds_phases = isinstance(record, PhaseRecord) or (
            waiting.holds_phases and not isinstance(record, StepRecord)
        )
        add_also = self._also.get(type(record))
        if add_also is not None:
            add_also(record)

    def add_many(self, chunk: Chunk) -> None:
        """Steps, phases and intervals that follow one another."""
        waiting = self._waiting
        if len(chunk.types) >= TOGETHER:
            if waiting.types:
                self._take(waiting.take())
            self._take(chunk)
            return
        waiting.add(chunk)
        if len(waiting.types) >= TOGETHER and waiting.types[-1] is not PhaseRecord:
            self._take(waiting.take())

    def _take_all(self) -> None:
        if self._waiting.types:
            self._take(self._waiting.take())
        self._take_intervals()

    def _take(self, chunk: Chunk) -> None:
        """The usual ones together, the others one by one."""
        types, end = chunk.types, len(chunk.types)
        begin = int(types[0] is StepRecord and (self._waiting.holds_phases or PhaseRecord in chunk.columns))
        behind = max(begin, end - (types[-1] is PhaseRecord))
        self._add_one_by_one(chunk.between(0, begin))
        whole = chunk.between(begin, behind)
        takes_many = self._totals.takes_many and self._signals.slow_steps.takes_many
        steps = UsualSteps.of(whole.types, whole.columns) if takes_many else None
        if steps is not None:
            self._add_usual(steps, Intervals.made(whole.columns.get(IntervalRecord, ())))
        elif takes_many and len(whole.types) > FEW:  # most of them may be usual
            self._take(whole.between(0, len(whole.types) // 2))
            self._take(whole.between(len(whole.types) // 2, len(whole.types)))
        else:
            self._add_one_by_one(whole)
        self._add_one_by_one(chunk.between(behind, end))

    def _add_one_by_one(self, chunk: Chunk) -> None:
        for record in chunk.records():
            self._add(record)

    def _add_usual(self, steps: UsualSteps, intervals: Intervals) -> None:
        self._last_iteration = steps.columns["iteration"][-1]
        slow = self._signals.add_usual(steps)
        self._totals.add_usual(steps, intervals)
        self._take_intervals()
        have_slow = self._waiting.mark(steps.ends, slow)
        if have_slow:
            self._signals.add_intervals(intervals)
            self._trend.add(intervals, have_slow)

    def summary(self, state: str) -> Summary:
        """The run so far, which is in this state."""
        self._take_all()
        summary = self._totals.result()
        return summary.ended(state) if state in (KILLED, NOT_KNOWN) else summary

    def report(self, reading: Reading, state: str, with_unjudged: bool = True) -> TrainingReport:
        """The run so far, and what holds it back."""
        summary = self.summary(state)
        rated, since = self._totals.rated, summary.settled.first_iteration or 0
        facts = RunFacts.of(self._header.facts)
        ledgers, replays = self._totals.ledgers.result(since), self.replays()
        asked = None if replays is None else Asked(replays, self.doubt)
        if replays is not None and (facts.pipeline_parallel or 1) > 1:
            ledgers = [priced_ledger(one, replays) for one in ledgers]
        report = TrainingReport(
            overview=with_share(
                overview_of(summary, self._at(self._header.start_wall_ns), self._totals.ranks.nodes()),
                self._totals.ledgers.share_of_rank_0(facts.work_flops),
            ),
            findings=[],
            figures=_figures(summary),
            settled=summary.settled,
            trend=self._trend.result(self._signals.slow_steps),
            phases=_phases(summary, ledgers),
            ranks=self._ranks.result(self._totals.ranks, Scale.of(facts).world_size),
            stragglers=stragglers_of(self._totals.ranks, self._last_iteration),
            ledgers=ledgers,
            critical_path=None if asked is None else path_of(asked.path, ledgers),
            captured=self._captured_ranks(),
            memory=_memory(summary),
            hardware=summary.hardware,
            goodput=goodput_bar(_with_late(summary.goodput, late_share(ledgers))),
            monitor=self._monitor(summary),
            files=summary.files,
            reading=reading,
        )
        case = TrainingCase(
            report,
            self._signals,
            rated.steps,
            rated.iteration_ns / NS_PER_S,
            anatomy_of(ledgers) or self._signals.anatomy(since),
            asked=asked,
            facts=facts,
            options=PerfConfig.of(self._header.config),
        )
        if asked is not None and with_unjudged:
            case = replace(case, report=replace(report, offers=best(asked, facts)))
        return find(case, with_unjudged)

    @property
    def has_captured(self) -> bool:
        """Whether there are captured steps."""
        return self._replayed.has_steps

    def replays(self) -> Replays | None:
        """The captured steps; None where there are none that can be replayed, and `why_not`."""
        return self._replayed.replays(self.pauses_ns())

    @property
    def why_not(self) -> str:
        """Why captured steps are not replayed; "" where they are, or where there are none."""
        return self._replayed.why_not

    @property
    def rated(self) -> StepSums:
        """The steps that rates are made of, added up."""
        self._take_all()
        return self._totals.rated

    def pauses_ns(self) -> dict[str, float]:
        """By name, what stands between two steps now and then, per step."""
        pauses_ns = {"checkpoint": self.rated.checkpoint_ns, "evaluation": self.rated.eval_ns}
        return {name: ns / max(1, self.rated.steps) for name, ns in pauses_ns.items() if ns}

    def _captured_ranks(self) -> CapturedRanks | None:
        found = self._captured.result()
        return None if found is None else replace(found, not_replayed=self.why_not)

    def _add_captured(self, record: NodeRecord | CaptureRecord | CapturedRecord) -> None:
        for fold in (self._replayed, self._captured):
            if isinstance(record, CapturedRecord):
                fold.add(record)
            elif isinstance(record, CaptureRecord):
                fold.window(record)
            else:
                fold.node(record)

    def _add_step(self, step: StepRecord) -> None:
        self._last_iteration = step.iteration
        self._waiting.has_slow |= self._signals.add_step(step)

    def _add_interval(self, interval: IntervalRecord) -> None:
        self._waiting.intervals.append((interval, self._waiting.has_slow))
        self._waiting.has_slow = False
        if len(self._waiting.intervals) == TOGETHER:
            self._take_intervals()

    def _take_intervals(self) -> None:
        if self._waiting.intervals:
            records, have_slow = zip(*self._waiting.intervals, strict=True)
            self._waiting.intervals, intervals = [], Intervals.of(records)
            self._signals.add_intervals(intervals)
            self._trend.add(intervals, have_slow)

    def _add_event(self, event: EventRecord) -> None:
        is_known = event.name in self._event_counts or len(self._event_counts) < MAX_EVENTS
        name = event.name if is_known else OTHER_EVENTS
        self._event_counts[name] += 1
        if is_known and self._event_counts[name] <= MAX_EVENTS:
            self._events.append(event)

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
    known = vars(summary.final_statistics) | vars(summary.totals)
    names = SUMMARY_NAMES | {"max_ms": "max_iteration_ms"}
    return Figures(**{each.name: known[names.get(each.name, each.name)] for each in fields(Figures)})


def _phases(summary: Summary, ledgers: Sequence[Ledger]) -> Phases:
    """What a ledger has of rank 0, else what was summed up of it."""
    phases, steps = summary.phases, summary.phases.steps
    for ledger in ledgers:
        for unit in ledger.ranks:
            if 0 in unit.ranks:
                named = [
                    row if row.total_s or phases.total_s[row.name] is not None else _unnamed(row.name)
                    for row in phases_of(ledger, unit)
                ]
                return Phases(ledger.steps, named, **vars(summary.bubble))
    rows = [
        _unnamed(name)
        if total_s is None or not steps
        else Phase(name, total_s, phases.share[name], total_s / steps * MS_PER_S)
        for name, total_s in ((name, phases.total_s[name]) for name in PHASES)
    ]
    return Phases(steps, rows if steps else [], **vars(summary.bubble))


def _unnamed(name: str) -> Phase:
    return Phase(name, None, None, None)


def _memory(summary: Summary) -> Memory:
    peak_gb, device_gb = summary.final_statistics.peak_memory_gb, summary.memory.device_gb
    peak_share = None if peak_gb is None or not device_gb else peak_gb / device_gb
    return Memory(peak_gb=peak_gb, peak_share=peak_share, **vars(summary.memory))


def _with_late(goodput: Goodput, share: float | None) -> Goodput:
    return goodput if share is None else goodput.with_late(share)


def goodput_bar(goodput: Goodput) -> GoodputBar:
    """Its classes in seconds and as shares of the wall time."""
    wall_s = goodput.wall_ns / NS_PER_S
    durations_s = {name: as_s(getattr(goodput, f"{name}_ns")) for name in _CLASSES}
    parts = [
        GoodputPart(name, _CLASSES[name], dur_s, None if dur_s is None or not wall_s else dur_s / wall_s)
        for name, dur_s in durations_s.items()
    ]
    return GoodputBar(wall_s, parts, goodput.ettr)
