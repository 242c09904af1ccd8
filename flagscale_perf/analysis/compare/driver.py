"""Runs compared unit by unit (a step, a call, a round ...): what is the same for every instrument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flagscale_perf.analysis.blocks import Line, Panel, Section, Series
from flagscale_perf.analysis.compare.compare import (
    BASE,
    MEAN,
    NEW,
    STATISTICS,
    CompareOptions,
    Comparison,
    Difference,
    Disturbance,
    Figure,
    Gate,
    RunEntry,
    Slowing,
    Stretch,
    Terms,
    culprits,
    large_parts,
    relative,
)
from flagscale_perf.analysis.compare.gate import Judgement, doubted_sides, gate_of
from flagscale_perf.analysis.compare.judge import UNDECIDED, Judge, Needed, Row, distance
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.averages import mean, mean_of_all, percentile
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.shift import Shift, shift_of
from flagscale_perf.spine.units import as_ms

MIN_UNITS, MAX_UNITS = 8, 4096  # of a run, where an instrument does not say otherwise
WARMUP_SHARE = 4  # at most every fourth unit is left out as warm-up
SHORTEST, MOST_CHANGES = 8, 2  # units of a stretch that is judged apart, and changes between them
Values = Sequence[float | None]
Sides = tuple[Mapping[str, float | None], Mapping[str, float | None]]


@dataclass(frozen=True)
class Units:
    """One run, as it is compared; the n-th unit of one run with the n-th of the others.

    Attributes:
        session: the run.
        times: of its units, in `Terms.unit`.
        parts: of these times, by name; None where a unit has no such part.
        left_out: units that are not compared, by the reason.
        facts: its configuration.
        amounts: by figure, values whose mean over a side's runs is shown; it is not known if one is not.
        skipped_lines: lines of its files that are no records.
        title: what it is called; if empty, as its file.
        numbers: of its units; empty where they are counted from 1.
        slowed: what made it slower from outside.
    """

    session: Session
    times: Sequence[float]
    parts: Mapping[str, Values]
    left_out: Mapping[str, int]
    facts: Mapping[str, object]
    amounts: Mapping[str, Values] = field(default_factory=dict)
    skipped_lines: int = 0
    title: str = ""
    numbers: Sequence[int] = ()
    slowed: Sequence[Slowing] = ()

    @classmethod
    def of(
        cls,
        session: Session,
        units: Sequence[Unit],
        left_out: Mapping[str, int],
        facts: Mapping[str, object],
        **others: Any,
    ) -> Units:
        """A run of these units, in milliseconds; `others`: fields by name."""
        parts = dict.fromkeys(name for unit in units for name in unit.parts)
        return cls(
            session,
            times=[unit.time / NS_PER_MS for unit in units],
            parts={name: [as_ms(unit.parts.get(name)) for unit in units] for name in parts},
            left_out=left_out,
            facts=facts,
            amounts={name: [unit.amounts[name] for unit in units] for name in units[0].amounts},
            numbers=[unit.number for unit in units],
            **others,
        )

    @property
    def known(self) -> Mapping[str, object]:
        """Its facts, and of how many machines it is."""
        return {**self.facts, "machines": len(self.session.machines)}

    @property
    def name(self) -> str:
        """Its title, or that of its file."""
        return self.title or self.session.path.stem

    def first(self, count: int) -> Units:
        """The first units alone."""
        unpaired = len(self.times) - count
        return replace(
            self,
            times=self.times[:count],
            parts={name: row[:count] for name, row in self.parts.items()},
            left_out={**self.left_out} | ({"not in every run": unpaired} if unpaired else {}),
            amounts={name: row[:count] for name, row in self.amounts.items()},
            numbers=self.numbers[:count] or range(1, count + 1),
        )

    def is_same_as(self, other: Units) -> bool:
        """Whether it is that run: they share a file, or the copy of one."""
        own, others = ({path.resolve() for path in run.session.paths} for run in (self, other))
        if own & others:
            return True
        headers = [file.header for file in self.session.files]
        is_copied = any(file.header in headers for file in other.session.files)
        return is_copied and (self.times, self.numbers) == (other.times, other.numbers)


@dataclass(frozen=True)
class Unit:
    """One unit of a run, of one machine or process or of all. Times in nanoseconds.

    Attributes:
        number: what it is called by.
        time: of all of it.
        parts: of this time, by name; None for what is not known.
        amounts: by figure, as of `Units`.
    """

    number: int
    time: float
    parts: Mapping[str, float | None]
    amounts: Mapping[str, float | None]


def mean_unit(units: Sequence[Unit]) -> Unit:
    """The mean of the n-th units of several machines or processes; a part that one has not took 0 there."""

    def means(values: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
        names = dict.fromkeys(name for one in values for name in one)
        return {name: mean_of_all([one.get(name, 0.0) for one in values]) for name in names}

    parts, amounts = (means([getattr(unit, name) for unit in units]) for name in ("parts", "amounts"))
    return Unit(units[0].number, mean([unit.time for unit in units]), parts, amounts)


def warm(session: Session, count: int, warmup: int, what: str) -> int:
    """How many of a session's first units are left out as warm-up. Raises PerfError where too few are left;
    `what` there are `count` of.
    """
    first = min(warmup, count // WARMUP_SHARE)
    if count - first < MIN_UNITS:
        raise PerfError(
            f"{str(session.path)!r} has {count} {what}; {MIN_UNITS + first} are needed: record a longer run"
        )
    return first


def used_parts(runs: Sequence[Units]) -> list[Units]:
    """The runs without parts that took no time in any of them."""
    used = {name for run in runs for name, row in run.parts.items() if any(row)}
    return [
        replace(run, parts={name: row for name, row in run.parts.items() if name in used}) for run in runs
    ]


@dataclass(frozen=True)
class Side:
    """`BASE` or `NEW`, and its runs."""

    name: str
    runs: Sequence[Units]

    def named(self) -> list[tuple[str, Units]]:
        """Each run with what it is called in a sentence, such as `BASE` or `BASE's run 2`."""
        if len(self.runs) == 1:
            return [(self.name, self.runs[0])]
        return [(f"{self.name}'s run {number}", run) for number, run in enumerate(self.runs, start=1)]

    def disturbed(self, span: slice) -> float:
        """The most that disturbances took of the time in these units, a share: all of it may lie in them."""
        own = [
            (sum(run.times[span]), sum(one.share for one in run.slowed) * sum(run.times)) for run in self.runs
        ]
        return sum(min(time, taken) for time, taken in own) / sum(time for time, _ in own)

    def disturbances(self) -> list[Disturbance]:
        """Those of its runs."""
        whole = sum(sum(run.times) for run in self.runs)
        return [
            Disturbance(self.name, one.words.format(name), one.share * sum(run.times) / whole)
            for name, run in self.named()
            for one in run.slowed
        ]

    def typical(self) -> dict[str, float | None]:
        """Mean, 95th percentile, and the mean of each amount, by figure."""
        times = sorted(time for run in self.runs for time in run.times)
        found: dict[str, float | None] = {"mean": mean(times), "p95": percentile(times, 0.95)}
        for name in self.runs[0].amounts:
            values = [value for run in self.runs for value in run.amounts[name]]
            found[name] = mean_of_all(values)
        return found


class Compared:
    """Two sides of runs, judged.

    Attributes:
        terms: of the instrument.
        sides: BASE and NEW, whose runs are cut to equally many units.
        times, parts: of each run, BASE's first.
        whole, mean, gate, same_run, stretches: as in `Comparison`.
        rows: of the parts, with their verdicts.
        disturbances: as `Comparison.disturbed`.
    """

    def __init__(
        self, base: Sequence[Units], new: Sequence[Units], terms: Terms, options: CompareOptions
    ) -> None:
        """Raises PerfError for a run that is in a side twice."""
        count = min(len(run.times) for run in (*base, *new))
        base, new = ([run.first(count) for run in side] for side in (base, new))
        self.terms, self._options = terms, options
        self.sides = Side(BASE, base), Side(NEW, new)
        self.same_run = _on_both_sides(base, new)
        self.times = [run.times for run in self._runs]
        self.parts = _parts(self._runs)
        self._judge = self._judge_of(options.judge)
        self.whole, self.rows = self._judge.whole(options.error), self._judge.parts(self.parts)
        self.mean = self.whole if options.judge == MEAN else self._judge_of(MEAN).whole()
        self._shifts = [shift_of(run.times, run.numbers) for run in self._runs]
        stretches = self._stretches()
        self.stretches = [stretch for _, stretch in stretches]
        self.gate, doubted = self._gate(
            [(one.whole, span) for span, one in stretches] or [(self.whole, slice(None))]
        )
        self.disturbances = [
            replace(one, is_doubt=side.name in doubted) for side in self.sides for one in side.disturbances()
        ]

    def comparison(
        self,
        figures: Sides = ({}, {}),
        charts: Sequence[Section] | None = None,
        others: Sequence[Row] = (),
    ) -> Comparison:
        """The whole comparison.

        Args:
            figures: of BASE and of NEW, beside mean, 95th percentile and the runs' amounts.
            charts: as in `Comparison`; None for the units' times over each other.
            others: rows to show after the parts, of which nothing is said.
        """
        terms, cut = self.terms, len(self.sides[0].runs)
        numbers = self._runs[0].numbers
        before, after = ({**side.typical(), **own} for side, own in zip(self.sides, figures, strict=True))
        entries = [
            RunEntry(str(run.session.path), run.name, middle, dict(run.left_out), run.skipped_lines, shift)
            for run, middle, shift in zip(self._runs, self._judge.medians, self._shifts, strict=True)
        ]
        is_open = self.whole.verdict == UNDECIDED and self.same_run is None and not self.stretches
        return Comparison(
            judged=self._options.judge,
            basis=terms.basis or terms.noun,
            unit=terms.unit,
            iterations=len(numbers),
            first_iteration=numbers[0],
            last_iteration=numbers[-1],
            is_by_iteration=True,
            base_runs=entries[:cut],
            new_runs=entries[cut:],
            figures=[
                Figure(name, value, after[name], relative(value, after[name]))
                for name, value in before.items()
            ],
            whole=self.whole,
            mean=self.mean,
            phases=[*self.rows, *others],
            culprits=culprits(self.whole, self.rows),
            large_parts=large_parts(self.whole, self.rows),
            noise=self._judge.noise,
            noise_source=self._noise_source(),
            block_length=self._judge.block_length,
            is_apart=self._judge.is_apart,
            needed=self._needed(distance(self.whole.share or 0.0)) if is_open else None,
            differences=differences(*(side.runs[0].known for side in self.sides)),
            same_run=self.same_run,
            gate=self.gate,
            terms=terms,
            charts=[self.trend()] if charts is None else charts,
            stretches=self.stretches,
            disturbed=self.disturbances,
        )

    def trend(self) -> Section:
        """The runs over each other, unit by unit."""
        title, span = "The runs over each other", (1.0, float(len(self.times[0])))
        lines = [
            Line(f"{side.name} {number}", [*range(1, len(run.times) + 1)], [*run.times], colour)
            for side, colour in zip(self.sides, ("blue", "orange"), strict=True)
            for number, run in enumerate(side.runs, start=1)
        ]
        panel = Panel(f"Time of {self.terms.a_noun}", self.terms.unit, lines, begins_at_zero=True)
        return Section("trend", "Trend", title, [Series("trend", title, [panel], self.terms.noun, span)])

    @property
    def _runs(self) -> list[Units]:
        return [run for side in self.sides for run in side.runs]

    def _judge_of(self, statistic: str, span: slice = slice(None)) -> Judge:
        noise = self.terms.noise if self._options.noise is None else self._options.noise
        bases = len(self.sides[0].runs)
        return Judge([row[span] for row in self.times], bases, noise, STATISTICS[statistic])

    def _needed(self, away: float) -> Needed:
        return self._judge.needed(away, self.terms.most)

    def _noise_source(self) -> str:
        if self._judge.is_noise_seen:
            return "seen between the runs of each side"
        return self.terms.assumed if self._options.noise is None else "--noise"

    def _stretches(self) -> list[tuple[slice, Stretch]]:
        """What lies between the runs' changes, each stretch judged by itself; none where none differs."""
        spans = _between_changes(len(self.times[0]), self._shifts)
        if len(spans) < 2 or self.same_run is not None:
            return []
        found = []
        for span in spans:
            judge = self._judge_of(self._options.judge, span)
            whole = judge.whole(self._options.error / len(spans))
            parts = judge.parts({name: [row[span] for row in rows] for name, rows in self.parts.items()})
            own = self._runs[0].numbers[span]
            found.append((span, Stretch(own[0], own[-1], whole, culprits(whole, parts))))
        return found if any(one.whole.verdict != UNDECIDED for _, one in found) else []

    def _gate(self, judged: Sequence[tuple[Row, slice]]) -> tuple[Gate | None, set[str]]:
        """The answer to `--fail-if-slower`, None without it, and sides whose disturbances are doubts."""
        judgements = [
            Judgement(row, {side.name: side.disturbed(span) for side in self.sides}) for row, span in judged
        ]
        doubted, limit = doubted_sides(judgements), self._options.fail_if_slower
        if limit is None:
            return None, doubted
        if self.same_run is not None:
            return Gate(limit, UNDECIDED), doubted
        gate, also = gate_of(judgements, limit, self._needed)
        return gate, doubted | also


def _parts(runs: Sequence[Units]) -> dict[str, list[Values]]:
    """Of each run, by name; None for what a run has not."""
    names = dict.fromkeys(name for run in runs for name in run.parts)
    return {name: [run.parts.get(name, [None] * len(run.times)) for run in runs] for name in names}


def _on_both_sides(base: Sequence[Units], new: Sequence[Units]) -> str | None:
    """Name of a run that is in BASE and in NEW. Raises PerfError for one that is in a side twice: one run is
    no second measurement.
    """
    for side in (base, new):
        for place, run in enumerate(side):
            twin = next((other for other in side[:place] if other.is_same_as(run)), None)
            if twin is not None:
                raise PerfError(
                    f"'{twin.session.path}' and '{run.session.path}' are the same run, and a run counts once;"
                    " leave one of them out"
                )
    return next((run.name for run in new if any(run.is_same_as(one) for one in base)), None)


def differences(base: Mapping[str, object], new: Mapping[str, object]) -> list[Difference]:
    """The facts in which the sides differ, in their order; None on a side that lacks one."""
    return [
        Difference(name, base.get(name), new.get(name))
        for name in dict.fromkeys([*base, *new])
        if base.get(name) != new.get(name)
    ]


def _between_changes(count: int, shifts: Sequence[Shift | None]) -> list[slice]:
    """The places between the largest changes of the runs, of `count` that each has."""
    changes = [(abs(shift.after - shift.before), shift.place) for shift in shifts if shift is not None]
    cuts = [0, count]
    for _, place in sorted(changes, reverse=True):
        if len(cuts) < MOST_CHANGES + 2 and all(abs(place - cut) >= SHORTEST for cut in cuts):
            cuts.append(place)
    return [slice(*ends) for ends in zip(sorted(cuts), sorted(cuts)[1:], strict=False)]
