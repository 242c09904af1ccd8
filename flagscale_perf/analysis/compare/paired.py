"""Runs compared unit by unit (a step, a call, a round ...): what is the same for every instrument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flagscale_perf.analysis.blocks import Section
from flagscale_perf.analysis.compare import sides
from flagscale_perf.analysis.compare.compare import (
    MEAN,
    STATISTICS,
    CompareOptions,
    Comparison,
    Difference,
    Disturbance,
    Gate,
    RunEntry,
    Stretch,
    culprits,
    doubts,
    gate,
    gate_of_stretches,
    large_parts,
)
from flagscale_perf.analysis.compare.judge import CONFIDENCE, UNDECIDED, Judge, Row, distance
from flagscale_perf.analysis.shift import Shift, shift_of

SHORTEST, MOST_CHANGES = 8, 2  # units of a stretch that is judged apart, and changes between them


@dataclass(frozen=True)
class Paired:
    """Runs with equally many units each; the n-th unit of one run is compared with the n-th of the others.

    Attributes:
        runs: BASE's first.
        cut: how many of them are BASE's.
        noun: what a unit is called.
        times: of each run's units, in `unit`.
        parts: of these times, by name; None where a unit has no such part.
        left_out: units of each run that are not compared, by the reason.
        most: units of a run that can be compared.
        noise: standard deviation to assume between two runs of one configuration, as a share.
        same_run: title of a run that is on both sides; None if there is none.
        unit: of the times.
        assumed: where `noise` is from.
        numbers: of each run's units; None where they are counted from 1.
        disturbed: what made runs slower from outside.
    """

    runs: Sequence[sides.Run]
    cut: int
    noun: str
    times: Sequence[Sequence[float]]
    parts: Mapping[str, Sequence[Sequence[float | None]]]
    left_out: Sequence[Mapping[str, int]]
    most: int
    noise: float
    same_run: str | None
    unit: str = "ms"
    assumed: str = "assumed"
    numbers: Sequence[Sequence[int]] | None = None
    disturbed: Sequence[Disturbance] = ()

    def judged(self, options: CompareOptions) -> Judged:
        """The judgement of the times."""
        noise = self.noise if options.noise is None else options.noise
        judge = Judge(self.times, self.cut, noise, STATISTICS[options.judge])
        whole, parts = judge.whole(), judge.parts(self.parts)
        mean = (
            whole if options.judge == MEAN else Judge(self.times, self.cut, noise, STATISTICS[MEAN]).whole()
        )
        numbers = self.numbers or [range(1, len(row) + 1) for row in self.times]
        shifts = [shift_of(row, own) for row, own in zip(self.times, numbers, strict=True)]
        stretches = self._stretches(options, noise, numbers, shifts)
        answer = self._gate(judge, whole, stretches, options.fail_if_slower)
        return Judged(self, options, judge, whole, mean, parts, answer, shifts, stretches)

    def _gate(
        self, judge: Judge, whole: Row, stretches: Sequence[Stretch], limit: float | None
    ) -> Gate | None:
        """The answer to `--fail-if-slower`; None without it."""
        if limit is None:
            return None
        if self.same_run is not None:
            return Gate(limit, UNDECIDED)
        found = (
            gate_of_stretches(stretches, limit)
            if stretches
            else gate(whole, limit, lambda away: judge.needed(away, self.most))
        )
        return Gate(limit, UNDECIDED) if doubts(found.outcome, self.disturbed) else found

    def _stretches(
        self,
        options: CompareOptions,
        noise: float,
        numbers: Sequence[Sequence[int]],
        shifts: Sequence[Shift | None],
    ) -> list[Stretch]:
        """What lies between the runs' changes, each stretch judged by itself; none where none differs."""
        spans = _between_changes(len(self.times[0]), numbers, shifts)
        if len(spans) < 2 or self.same_run is not None:
            return []
        statistic, error = STATISTICS[options.judge], (1 - CONFIDENCE) / len(spans)
        stretches = []
        for span in spans:
            judge = Judge([row[span] for row in self.times], self.cut, noise, statistic)
            whole = judge.whole(error)
            parts = judge.parts({name: [row[span] for row in rows] for name, rows in self.parts.items()})
            own = numbers[0][span]
            stretches.append(Stretch(own[0], own[-1], whole, culprits(whole, parts)))
        return stretches if any(one.whole.verdict != UNDECIDED for one in stretches) else []


@dataclass(frozen=True)
class Judged:
    """Runs and the verdict on them.

    Attributes:
        paired: the runs.
        options: by which they were judged.
        judge: which did it.
        whole, mean, parts, gate, stretches: as in `Comparison`.
        shifts: of each run within itself.
    """

    paired: Paired
    options: CompareOptions
    judge: Judge
    whole: Row
    mean: Row
    parts: list[Row]
    gate: Gate | None
    shifts: Sequence[Shift | None]
    stretches: Sequence[Stretch]

    def comparison(
        self,
        figures: tuple[Mapping[str, float | None], Mapping[str, float | None]],
        differences: list[Difference],
        charts: Sequence[Section] = (),
        others: Sequence[Row] = (),
    ) -> Comparison:
        """The whole comparison.

        Args:
            figures: of BASE and of NEW.
            differences: facts and options in which the sides differ.
            charts: as in `Comparison`.
            others: rows to show after the parts, of which nothing is said.
        """
        paired, judge = self.paired, self.judge
        count = len(paired.times[0])
        numbers = paired.numbers or [range(1, count + 1)] * len(paired.runs)
        entries = [
            RunEntry(str(run.path), run.title, middle, dict(left_out), run.skipped_lines, shift)
            for run, middle, left_out, shift in zip(
                paired.runs, judge.medians, paired.left_out, self.shifts, strict=True
            )
        ]
        is_open = self.whole.verdict == UNDECIDED and paired.same_run is None and not self.stretches
        return Comparison(
            judged=self.options.judge,
            basis=paired.noun,
            unit=paired.unit,
            iterations=count,
            first_iteration=numbers[0][0],
            last_iteration=numbers[0][-1],
            is_by_iteration=True,
            base_runs=entries[: paired.cut],
            new_runs=entries[paired.cut :],
            figures=sides.figures(*figures),
            whole=self.whole,
            mean=self.mean,
            phases=[*self.parts, *others],
            culprits=culprits(self.whole, self.parts),
            large_parts=large_parts(self.whole, self.parts),
            noise=judge.noise,
            noise_source=sides.noise_source(judge, self.options, paired.assumed),
            block_length=judge.block_length,
            is_apart=judge.is_apart,
            needed=judge.needed(distance(self.whole.share or 0.0), paired.most) if is_open else None,
            differences=differences,
            same_run=paired.same_run,
            gate=self.gate,
            charts=charts,
            stretches=self.stretches,
            disturbed=paired.disturbed,
        )


def _between_changes(
    count: int, numbers: Sequence[Sequence[int]], shifts: Sequence[Shift | None]
) -> list[slice]:
    """The places between the largest changes of the runs, of `count` that each has."""
    changes = [
        (abs(shift.after - shift.before), own.index(shift.last_before) + 1)
        for shift, own in zip(shifts, numbers, strict=True)
        if shift is not None
    ]
    cuts = [0, count]
    for _, place in sorted(changes, reverse=True):
        if len(cuts) < MOST_CHANGES + 2 and all(abs(place - cut) >= SHORTEST for cut in cuts):
            cuts.append(place)
    return [slice(*ends) for ends in zip(sorted(cuts), sorted(cuts)[1:], strict=False)]
