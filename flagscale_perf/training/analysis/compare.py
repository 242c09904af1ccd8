"""Trainings compared: their steps and phases, by the time of an iteration, a token or a FLOP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from flagscale_perf.analysis.blocks import Report, Section
from flagscale_perf.analysis.compare import blocks as comparison
from flagscale_perf.analysis.compare import sides as of_sides
from flagscale_perf.analysis.compare.compare import BASE, MEAN, NEW, CompareOptions, Comparison, Disturbance
from flagscale_perf.analysis.compare.paired import Paired
from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.rules import Finding
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.units import percent
from flagscale_perf.training.analysis.basis import (
    ITERATION,
    Basis,
    check_sides,
    choose_basis,
    configuration,
)
from flagscale_perf.training.analysis.fold import read_report
from flagscale_perf.training.analysis.ledgers import words
from flagscale_perf.training.analysis.series import Curve, phases_of_side, trends_of_runs
from flagscale_perf.training.analysis.steps import MAX_STEPS, RunSteps, Step, align, common_span, read_steps
from flagscale_perf.training.phases import PHASES, TABLE, Kind
from flagscale_perf.training.rates import as_gb, per_second, tflops_per_gpu
from flagscale_perf.training.utilisation import Scale

NOISE, REHEARSAL_NOISE = 0.01, 0.04  # where the figures are from: docs/reading.md
SIDES = (BASE, NEW)
DISTURBED = {  # by finding; throttling is one where it is seen to take time
    "host_short_of_cpu": "{} was short of CPU for {} of the time",
    "host_short_of_memory": "{} was short of memory for {} of the time",
    "throttling": "{}'s clock was capped, which took {} of the time",
    "standstill": "{} stood still for {} of its session",
}
_Seen = tuple[str, str, list[Finding]]  # side, name and findings of a run
LABELS = {  # and decimals
    "mean": ("mean iteration, {unit}", 2),
    "p95": ("p95 iteration, {unit}", 2),
    "tokens_per_s": ("tokens/s", 0),
    "tokens_per_s_per_gpu": ("tokens/s/GPU", 0),
    "tflops_per_gpu": ("TFLOPS/GPU", 2),
    "memory_peak_gb": ("peak memory, GB", 2),
}


def report_of(result: Comparison) -> Report:
    """The comparison as every format shows it, with remarks on what times are divided by."""
    whose = "phases are rank 0's; with 95 % confidence all their intervals hold at once"
    adds_up = "" if result.judged == MEAN else "; their medians need not add up to the whole's"
    remarks = [
        f"{whose}{adds_up}"
        if result.phases
        else "no phases: not every run has them (--perf-breakdown records them)"
    ]
    if result.basis != ITERATION:
        differ = "the runs differ in model, batch or world size"
        remarks.insert(0, f"{differ}: times are {result.unit}, not ms per iteration")
    said = replace(
        result,
        phases=[replace(row, name=words(row.name)) for row in result.phases],
        culprits=[words(name) for name in result.culprits],
        large_parts=[replace(row, name=words(row.name)) for row in result.large_parts],
        stretches=[replace(one, culprits=[words(name) for name in one.culprits]) for one in result.stretches],
    )
    return replace(comparison.report_of(said, LABELS, [*remarks, *result.remarks]), content=result)


def compare(base: Sequence[Path], new: Sequence[Path], options: CompareOptions) -> Comparison:
    """Compares the run files of one side with those of the other.

    Raises PerfError for files that cannot be read or compared: too few iterations, sides that are not of one
    configuration, nothing that both did.
    """
    span = common_span([*base, *new])
    runs = [read_steps(path, options.warmup, span) for path in [*base, *new]]
    sides = runs[: len(base)], runs[len(base) :]
    check_sides(*sides)
    same_run = _on_both_sides(*sides)
    aligned = align(runs)
    basis = choose_basis([run.facts for run in runs], aligned)
    rows, cut = aligned.rows, len(base)
    is_rehearsal = runs[0].facts.rehearsal
    phases = _phases(rows, basis)
    found = [
        (side, which, read_report(open_session(run.path)).findings) for side, which, run in _named(sides)
    ]
    judged = Paired(
        runs,
        cut,
        basis[0].name,
        times=[[by.of(step, step.iteration_ns) for step in row] for row, by in zip(rows, basis, strict=True)],
        parts=phases,
        left_out=aligned.left_out,
        most=MAX_STEPS,
        noise=REHEARSAL_NOISE if is_rehearsal else NOISE,
        same_run=same_run,
        unit=basis[0].unit,
        assumed=f"assumed for {'rehearsals on a CPU' if is_rehearsal else 'devices'}",
        numbers=[[step.iteration for step in row] for row in rows],
        disturbed=_disturbed(found),
    ).judged(options)
    result = judged.comparison(
        (_side(sides[0], rows[:cut], basis[0]), _side(sides[1], rows[cut:], basis[-1])),
        of_sides.differences(*(configuration(runs[0]) for runs in sides)),
        _charts(sides, phases, basis[0].unit),
    )
    return replace(result, is_by_iteration=aligned.is_by_iteration, remarks=_waiting(found, result.culprits))


def _charts(
    sides: tuple[Sequence[RunSteps], Sequence[RunSteps]],
    phases: Mapping[str, Sequence[Sequence[float | None]]],
    unit: str,
) -> list[Section]:
    cut = len(sides[0])
    curves = [
        Curve(
            name if number == 0 else f"{name} {number + 1}",
            run.points,
            colour,
            "dashed" if number else "line",
        )
        for name, colour, runs in zip(SIDES, ("blue", "orange"), sides, strict=True)
        for number, run in enumerate(runs)
    ]
    sections = [Section("trend", "Trend", "The runs over each other", [trends_of_runs(curves)])]
    means = [
        {name: _mean(runs[part]) for name, runs in phases.items()} for part in (slice(cut), slice(cut, None))
    ]
    room = max(sum(times.values()) for times in means)
    if room:
        bars = [phases_of_side(name, times, unit, room) for name, times in zip(SIDES, means, strict=True)]
        sections.append(Section("phases", "Phases", "Phases of the mean iteration on rank 0", bars))
    return sections


def _mean(runs: Sequence[Sequence[float | None]]) -> float:
    return sum(time or 0.0 for run in runs for time in run) / sum(map(len, runs))


def _named(sides: tuple[Sequence[RunSteps], Sequence[RunSteps]]) -> Iterator[tuple[str, str, RunSteps]]:
    """Side and name of each run, such as `BASE` or `BASE's run 2`."""
    for side, runs in zip(SIDES, sides, strict=True):
        for number, run in enumerate(runs, start=1):
            yield side, side if len(runs) == 1 else f"{side}'s run {number}", run


def _disturbed(found: Sequence[_Seen]) -> list[Disturbance]:
    return [
        Disturbance(side, DISTURBED[one.name].format(which, percent(shares[-1].value)))
        for side, which, findings in found
        for one in findings
        if one.name in DISTURBED and (shares := [each for each in one.evidence if each.unit == "share"])
    ]


def _waiting(found: Sequence[_Seen], culprits: Sequence[str]) -> list[str]:
    """If waiting has changed, for whom rank 0 waits, as rank 0's phases are compared."""
    if not any(TABLE[name].kind is Kind.WAITING for name in culprits):
        return []
    return [
        f"rank 0 waits in {which}: {one.title[0].lower()}{one.title[1:]}"
        for _, which, findings in found
        for one in findings
        if one.name in ("straggler", "slow_stage") and 0 not in one.ranks
    ]


def _on_both_sides(base: Sequence[RunSteps], new: Sequence[RunSteps]) -> str | None:
    """The session of a run that is in BASE and in NEW. Raises PerfError for one that is in a side twice: one
    run is no second measurement.
    """
    for side in (base, new):
        for place, run in enumerate(side):
            twin = next((other for other in side[:place] if other.is_same_as(run)), None)
            if twin is not None:
                raise PerfError(
                    f"'{twin.path}' and '{run.path}' are the same run, and a run counts once;"
                    " leave one of them out"
                )
    return next((run.header.session_id for run in new if any(run.is_same_as(one) for one in base)), None)


def _phases(rows: Sequence[Sequence[Step]], basis: Sequence[Basis]) -> Mapping[str, list[list[float | None]]]:
    if any(step.phases_ns is None for row in rows for step in row):
        return {}
    return {
        name: [[by.phase(step, place) for step in row] for row, by in zip(rows, basis, strict=True)]
        for place, name in enumerate(PHASES)
    }


def _side(runs: Sequence[RunSteps], rows: Sequence[list[Step]], basis: Basis) -> dict[str, float | None]:
    steps = [step for row in rows for step in row]
    elapsed_ns = sum(step.iteration_ns for step in steps)
    devices = Scale.of(runs[0].facts).world_size
    tokens = sum(step.tokens for step in steps)
    flops = [step.model_flops for step in steps if step.model_flops is not None]
    peaks = [run.memory_peak_bytes for run in runs if run.memory_peak_bytes is not None]
    return of_sides.typical([basis.of(step, step.iteration_ns) for step in steps]) | {
        "tokens_per_s": per_second(tokens, elapsed_ns),
        "tokens_per_s_per_gpu": None if devices is None else per_second(tokens, elapsed_ns * devices),
        "tflops_per_gpu": tflops_per_gpu(sum(flops), elapsed_ns, devices)
        if len(flops) == len(steps)
        else None,
        "memory_peak_gb": as_gb(max(peaks, default=None)),
    }
