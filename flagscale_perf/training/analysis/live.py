"""A training while it goes on: its last intervals, remarks, ranks and state, and the screen they make."""

from __future__ import annotations

from collections import deque
from typing import Any

from flagscale_perf.analysis.blocks import (
    Block,
    HeatMap,
    Layer,
    Line,
    Note,
    Panel,
    Quantity,
    Report,
    Section,
    Series,
    StackedBar,
    Stripe,
)
from flagscale_perf.analysis.session import Course, tone_of
from flagscale_perf.spine.clock import NS_PER_S, Anchor
from flagscale_perf.spine.figures import Rows
from flagscale_perf.spine.records import KILLED, NOT_KNOWN, RUNNING, EventRecord, Record, RunHeader
from flagscale_perf.spine.session import labels_of
from flagscale_perf.spine.units import as_ms, numbered, ranges
from flagscale_perf.store.evidence import not_known
from flagscale_perf.training.analysis.overview import sizes_of
from flagscale_perf.training.analysis.series import GROUP_COLOURS
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.figures import TABLE
from flagscale_perf.training.phases import GROUP_WORDS, GROUPS, share, total_of
from flagscale_perf.training.rank_records import RanksRecord, StragglerRecord
from flagscale_perf.training.ranks.late import words_of
from flagscale_perf.training.records import IntervalRecord, StepRecord
from flagscale_perf.training.settled import Settling
from flagscale_perf.training.window import end_mono_ns

SHOWN_INTERVALS = 240
SHOWN_EVENTS, _STRAGGLERS = 6, 4
_TONES = {"failure": "bad", "note": "", "resume": "", "clock": ""}


class LiveRun:
    """One session as far as it has been read, in bounded memory.

    Attributes:
        intervals, events: the last of them; of intervals those behind the warm-up.
        slow: stragglers by their ranks, as long as they are slow.
        ranks: in the last stretch that is known.
        last: the last finished iteration; None before the first.
    """

    def __init__(self, header: RunHeader) -> None:
        """Raises PerfError for a header whose session id is none."""
        self._labels = labels_of(header)
        self.header, self.facts, self.course = header, RunFacts.of(header.facts), Course()
        self.intervals: deque[IntervalRecord] = deque(maxlen=SHOWN_INTERVALS)
        self.events: deque[EventRecord] = deque(maxlen=SHOWN_EVENTS)
        self.slow: dict[tuple[int, ...], StragglerRecord] = {}
        self.ranks: RanksRecord | None = None
        self.last: StepRecord | None = None
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
        self._settling = Settling()

    def add(self, record: Record) -> None:
        """Takes the next record, in the order of the file."""
        self.course.add(record)
        if isinstance(record, StepRecord):
            self.last = record
            self._settling.add(record)
        elif isinstance(record, IntervalRecord):
            if record.steps and not record.warmup_only:
                self.intervals.append(record)
        elif isinstance(record, EventRecord):
            self.events.append(record)
        elif isinstance(record, RanksRecord):
            self.ranks = record
        elif isinstance(record, StragglerRecord):
            self.slow.pop(tuple(record.ranks), None)
            if not record.is_over:
                self.slow[tuple(record.ranks)] = record

    def iteration(self) -> int:
        """The last finished one; 0 before the first."""
        if self.last is not None:
            return self.last.iteration
        return self.facts.resume_iteration

    def last_wall_ns(self) -> int:
        """Unix time of the last sign of life."""
        if self.course.end is not None:
            return self.course.end.end_wall_ns
        return self._anchor.wall_of(end_mono_ns(self.last)) if self.last else self.header.start_wall_ns

    def left_s(self) -> float | None:
        """Seconds until the end of training, at the pace of the last interval; None if not known."""
        target = self.facts.train_iters
        if not self.intervals or target is None or target < self.iteration():
            return None
        last = self.intervals[-1]
        return (target - self.iteration()) * last.iteration_ns / last.steps / NS_PER_S

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready: how far it is."""
        return {"session_id": self.header.session_id, "iteration": self.iteration()}

    def before(self) -> str:
        """One line about it when a newer session follows."""
        ended = "ended" if self.course.end is None else self.course.end.reason
        return f"session {self.header.session_id} before it: {ended} after iteration {self.iteration()}"

    def report(self, has_writer: bool | None, now_wall_ns: int) -> Report:
        """The blocks of the screen."""
        state = self.course.state(has_writer)
        is_cut = self.course.end is None and state == KILLED
        unknown = Note(not_known(self.last_wall_ns(), now_wall_ns), "warn")
        slow = list(self.slow.values())[-_STRAGGLERS:]
        killed = "no end was recorded and the run file is no longer written: trainer and writer were killed"
        return Report(
            title=f"session {self.header.session_id}",
            state=state,
            tone=tone_of(state),
            facts=[Note(killed, "bad")] * is_cut + [unknown] * (state == NOT_KNOWN) + [Note(self._facts())],
            sections=[
                Section("progress", "", "", [self._progress(state, now_wall_ns)]),
                Section("figures", "", "", [self._figures()]),
                Section("phases", "", "", self._phases()),
                Section("ranks", "", "", [*self._ranks(), *map(_straggler, slow)]),
                Section("events", "", "", [*map(self._remark, self.events)]),
            ],
            content=self,
        )

    def _facts(self) -> str:
        facts = self.facts
        known = (
            f"{facts.script} on {facts.hostname}",
            f"{facts.world_size} x {facts.device}",
            facts.dtype,
            " ".join(f"{short}{size}" for short, size in sizes_of(facts).items()),
        )
        return ", ".join(each for each in known if each)

    def _progress(self, state: str, now_wall_ns: int) -> Block:
        done, target = self.iteration(), self.facts.train_iters
        words: list[str | Quantity] = [f"iteration {done}"]
        left_s = self.left_s()
        part = min(1.0, done / target) if target is not None and target > 0 else None
        if part is not None:
            words += [f" of {target}, ", Quantity(part, "share")]
        if state == RUNNING:
            age_s = max(0, now_wall_ns - self.last_wall_ns()) / NS_PER_S
            words += [", last ", Quantity(age_s, "s"), " ago"]
            words += [", ", Quantity(left_s, "s"), " left"] if left_s is not None else []
        if part is None:
            return Note(tuple(words))
        return StackedBar(
            tuple(words), "", [Stripe("", part, part, "green"), Stripe("", 1 - part, 1 - part, "faint")]
        )

    def _figures(self) -> Block:
        if not self.intervals:
            return Note("no interval has ended yet")
        rows = Rows(TABLE, self.header)
        x = [interval.iteration for interval in self.intervals]
        panels = []
        for title, figure in TABLE.watched():
            values = rows.numbers(figure, self.intervals)
            if any(value is not None for value in values):
                unit = "" if "/" in figure.unit.name else figure.unit.name  # a rate is named by its title
                line = Line(title, x, values, "sky")
                panels.append(Panel(title, unit, [line], decimals=figure.unit.decimals))
        title = f"{len(x)} intervals, to iteration {x[-1]}{self._start()}"
        return Series("figures", title, panels, "iteration", (x[0], x[-1]))

    def _start(self) -> str:
        start = self._settling.result()
        if start.is_slow:
            return f", settled from iteration {start.settled_iteration} on"
        return ", not settled yet" if start.is_too_long else ""

    def _phases(self) -> list[Block]:
        last = self.intervals[-1] if self.intervals else None
        if last is None or last.phases_ns is None:
            return []
        totals = {group: total_of(last.phases_ns, names) for group, names in GROUPS.items()}
        parts = [
            Stripe(GROUP_WORDS[group], as_ms(ns), share(ns, last.iteration_ns), GROUP_COLOURS[group])
            for group, ns in totals.items()
            if ns is not None and ns > 0
        ]
        return [StackedBar("", "ms", parts)]

    def _ranks(self) -> list[Block]:
        found = self.ranks
        if found is None or all(work_ns is None for work_ns in found.work_ns):
            return []
        count = len(found.work_ns)
        work_ms = [[as_ms(work_ns)] for work_ns in found.work_ns]
        layer = Layer(f"work of {count * found.ranks_per_entry} ranks", "ms", work_ms)
        edges = [found.first_iteration, found.iteration]
        numbers = [str(entry * found.ranks_per_entry) for entry in range(count)]
        count_words = "rank" if found.silent_count == 1 else f"{found.silent_count} ranks,"
        silent = f"silent: {count_words} {ranges(found.silent, found.silent_count)}"
        return [
            HeatMap("ranks", "", "rank", numbers, "iteration", None, edges, [layer]),
            *([Note(silent, "warn")] if found.silent_count else []),
        ]

    def _remark(self, event: EventRecord) -> Note:
        time = self._labels.at(self._anchor.wall_of(event.at_ns))
        return Note(f"{time:%H:%M:%S} {event.name}: {event.text}", _TONES.get(event.name, "warn"))


def _straggler(slow: StragglerRecord) -> Note:
    who = f"slow: {numbered('rank', slow.ranks)} on {slow.hostname}, {slow.phase} "
    since = f" longer a step since iteration {slow.first_iteration}"
    return Note((who, Quantity(as_ms(slow.excess_ns), "ms"), since, words_of(slow)), "warn")
