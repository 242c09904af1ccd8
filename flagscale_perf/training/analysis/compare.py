"""Trainings compared: their steps and phases, by the time of an iteration, a token or a FLOP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flagscale_perf.analysis.blocks import Section, bars_to_scale
from flagscale_perf.analysis.compare.compare import (
    BASE,
    MEAN,
    NEW,
    CompareOptions,
    Comparison,
    Slowing,
    Terms,
)
from flagscale_perf.analysis.compare.driver import Compared, Units
from flagscale_perf.analysis.rules import Finding
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.averages import mean
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.units import percent
from flagscale_perf.training.analysis import patch
from flagscale_perf.training.analysis.basis import (
    ITERATION,
    Basis,
    check_sides,
    choose_basis,
    configuration,
    noise_of,
)
from flagscale_perf.training.analysis.fold import read_report
from flagscale_perf.training.analysis.ledgers import words
from flagscale_perf.training.analysis.report import Curves
from flagscale_perf.training.analysis.series import Curve, phase_parts, trends_of_runs
from flagscale_perf.training.analysis.steps import MAX_STEPS, RunSteps, Step, align, common_span, read_steps
from flagscale_perf.training.phases import PHASES, TABLE, Kind
from flagscale_perf.training.rates import as_gb, known_tokens, per_second, tflops_per_gpu
from flagscale_perf.training.utilisation import Scale

SIDES = (BASE, NEW)
DISTURBED = {  # by finding; throttling is one where it is seen to take time
    "host_short_of_cpu": "{} was short of CPU for {} of the time",
    "host_short_of_memory": "{} was short of memory for {} of the time",
    "throttling": "{}'s clock was capped, which took {} of the time",
    "standstill": "{} stood still for {} of its session",
}
LABELS = {  # and decimals
    "mean": ("mean iteration, {unit}", 2),
    "p95": ("p95 iteration, {unit}", 2),
    "tokens_per_s": ("tokens/s", 0),
    "tokens_per_s_per_gpu": ("tokens/s/GPU", 0),
    "tflops_per_gpu": ("TFLOPS/GPU", 2),
    "memory_peak_gb": ("peak memory, GB", 2),
}


def compare(base: Sequence[Session], new: Sequence[Session], options: CompareOptions) -> Comparison:
    """Compares the runs of one side with those of the other.

    Raises PerfError for runs that cannot be read or compared: too few iterations, sides that are not of one
    configuration, nothing that both did.
    """
    sessions, cut = [*base, *new], len(base)
    span = common_span(sessions)
    runs = [read_steps(session, options.warmup, span) for session in sessions]
    sides = runs[:cut], runs[cut:]
    check_sides(*sides)
    aligned = align(runs)
    basis = choose_basis([run.facts for run in runs], aligned)
    reports = [read_report(session) for session in sessions]
    found = [report.findings for report in reports]
    whole = zip(runs, aligned.rows, basis, aligned.left_out, found, strict=True)
    units = [_units(*one) for one in whole]
    if any(not one.parts for one in units):
        units = [replace(one, parts={}) for one in units]
    terms = _terms(basis[0], runs[0].facts.is_on_cpu, options.judge, bool(units[0].parts))
    compared = Compared(units[:cut], units[cut:], terms, options)
    result = compared.comparison(
        (_side(sides[0], aligned.rows[:cut], basis[0]), _side(sides[1], aligned.rows[cut:], basis[-1])),
        _charts([report.trend.curves for report in reports], cut, compared.parts, terms.unit),
    )
    remarks = _waiting([name for side in compared.sides for name, _ in side.named()], found, result.culprits)
    remarks += patch.remark(found[0], [runs[0].facts, runs[cut].facts])
    return replace(result, is_by_iteration=aligned.is_by_iteration, remarks=remarks)


def _units(
    run: RunSteps, row: Sequence[Step], by: Basis, left_out: Mapping[str, int], findings: Sequence[Finding]
) -> Units:
    """These steps of the run on this basis."""
    has_phases = all(step.phases_ns is not None for step in row)
    return Units(
        run.session,
        times=[by.of(step, step.iteration_ns) for step in row],
        parts={name: [by.phase(step, place) for step in row] for place, name in enumerate(PHASES)}
        if has_phases
        else {},
        left_out=left_out,
        facts=configuration(run),
        skipped_lines=run.skipped_lines,
        title=run.session.header.session_id,
        numbers=[step.iteration for step in row],
        slowed=[*filter(None, (_slowing(one, row) for one in findings))],
    )


def _slowing(finding: Finding, row: Sequence[Step]) -> Slowing | None:
    share = finding.cost_share if finding.cost_of_steps is None else finding.cost_of_steps
    if finding.name not in DISTURBED or share is None:
        return None
    words = DISTURBED[finding.name].format("{}", percent(share))
    stretch = row[-1].iteration - row[0].iteration + 1  # of which long ones are thinned
    compared_s = stretch * mean([step.iteration_ns for step in row]) / NS_PER_S
    if finding.cost_of_steps is not None and finding.cost_s is not None:
        share = min(1.0, max(share, finding.cost_s / compared_s))  # all of it may lie there
    return Slowing(words, share)


def _terms(basis: Basis, is_on_cpu: bool, judge: str, has_phases: bool) -> Terms:
    whose = "phases are rank 0's; with 95 % confidence all their intervals hold at once"
    adds_up = "" if judge == MEAN else "; their medians need not add up to the whole's"
    differ = "the runs differ in model, batch or world size"
    noise, assumed = noise_of(is_on_cpu)
    return Terms(
        ITERATION,
        MAX_STEPS,
        LABELS,
        remarks=[
            *([] if basis.name == ITERATION else [f"{differ}: times are {basis.unit}, not ms per iteration"]),
            f"{whose}{adds_up}"
            if has_phases
            else "no phases: not every run has them (--perf-breakdown records them)",
        ],
        words=words,
        basis=basis.name,
        unit=basis.unit,
        noise=noise,
        assumed=assumed,
    )


def _charts(
    drawn: Sequence[Curves],
    cut: int,
    phases: Mapping[str, Sequence[Sequence[float | None]]],
    unit: str,
) -> list[Section]:
    """`drawn`: of each run; those before the `cut` are BASE's."""
    curves = [
        Curve(
            name if number == 0 else f"{name} {number + 1}",
            points,
            colour,
            "dashed" if number else "line",
        )
        for name, colour, side in zip(SIDES, ("blue", "orange"), (drawn[:cut], drawn[cut:]), strict=True)
        for number, points in enumerate(side)
    ]
    sections = [Section("trend", "Trend", "The runs over each other", [trends_of_runs(curves)])]
    means = [
        {name: _mean(runs[part]) for name, runs in phases.items()} for part in (slice(cut), slice(cut, None))
    ]
    parts = {name: phase_parts(times) for name, times in zip(SIDES, means, strict=True)}
    if any(parts.values()):
        bars = bars_to_scale(unit, parts)
        sections.append(Section("phases", "Phases", "Phases of the mean iteration on rank 0", bars))
    return sections


def _mean(runs: Sequence[Sequence[float | None]]) -> float:
    return sum(time or 0.0 for run in runs for time in run) / sum(map(len, runs))


def _waiting(names: Sequence[str], found: Sequence[Sequence[Finding]], culprits: Sequence[str]) -> list[str]:
    """If waiting has changed, for whom rank 0 waits, as rank 0's phases are compared."""
    if not any(TABLE[name].kind is Kind.WAITING for name in culprits):
        return []
    return [
        f"rank 0 waits in {which}: {one.title[0].lower()}{one.title[1:]}"
        for which, findings in zip(names, found, strict=True)
        for one in findings
        if one.name in ("straggler", "slow_stage") and 0 not in one.ranks
    ]


def _side(runs: Sequence[RunSteps], rows: Sequence[list[Step]], basis: Basis) -> dict[str, float | None]:
    steps = [step for row in rows for step in row]
    elapsed_ns = sum(step.iteration_ns for step in steps)
    devices = Scale.of(runs[0].facts).world_size
    tokens = known_tokens(sum(step.tokens for step in steps), sum(step.samples for step in steps))
    flops = [step.model_flops for step in steps if step.model_flops is not None]
    peaks = [run.memory_peak_bytes for run in runs if run.memory_peak_bytes is not None]
    return {
        "tokens_per_s": per_second(tokens, elapsed_ns),
        "tokens_per_s_per_gpu": None if devices is None else per_second(tokens, elapsed_ns * devices),
        "tflops_per_gpu": tflops_per_gpu(sum(flops), elapsed_ns, devices)
        if len(flops) == len(steps)
        else None,
        "memory_peak_gb": as_gb(max(peaks, default=None)),
    }
