"""Two configurations side by side: is one slower than the other, by how much, in which phase, and is that
more than noise?

The method is in docs/comparing.md. Frozen data, JSON-ready by `as_dict`; None means "not known". Shares are
parts of 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from flagscale_perf.analysis.compare import bootstrap
from flagscale_perf.analysis.compare.judge import SLOWER, Judge, Row
from flagscale_perf.spine.jsonl import finite
from flagscale_perf.training.analysis.basis import (
    Basis,
    Difference,
    check_sides,
    choose_basis,
    devices_of,
    differences,
)
from flagscale_perf.training.analysis.steps import RunSteps, Step, align, common_span, read_steps
from flagscale_perf.training.rates import as_gb, per_second, tflops_per_gpu

COMPARISON_VERSION = 1
NOISE, REHEARSAL_NOISE = 0.01, 0.04  # where the figures are from: docs/comparing.md
DEFAULT_WARMUP = 10


@dataclass(frozen=True)
class CompareOptions:
    """What to compare by.

    Attributes:
        warmup: iterations after a run's start that are left out.
        noise: standard deviation to assume between the medians of two runs of one configuration, as a share;
            None for `NOISE` or, where CPU rehearsals are compared, `REHEARSAL_NOISE`.
        fail_if_slower: what NEW may be slower, as a share; None for no limit.
    """

    warmup: int = DEFAULT_WARMUP
    noise: float | None = None
    fail_if_slower: float | None = None


@dataclass(frozen=True)
class RunEntry:
    """One run: its file, its median in `Comparison.unit`, how many iterations are left out by the reason, and
    lines that are no records.
    """

    path: str
    session_id: str
    median: float
    left_out: dict[str, int]
    skipped_lines: int


@dataclass(frozen=True)
class Figure:
    """A figure of each side, over the iterations compared of all its runs together; `change` as a part of
    `base`.

    "mean" and "p95" (of an iteration) are in `Comparison.unit`; "memory_peak_gb" is of the whole runs.
    """

    name: str
    base: float | None
    new: float | None
    change: float | None


@dataclass(frozen=True)
class Comparison:
    """Everything.

    Attributes:
        basis, unit: what the times are for, see `training.analysis.basis`.
        iterations: of each run compared.
        first_iteration, last_iteration: of BASE's first run.
        is_by_iteration: iterations with the same number are compared; else the last ones of each run.
        base_runs, new_runs: at least one each.
        figures: those of `Figure`, always all of them.
        whole: the iteration; at 95 %.
        phases: at 95 % for all of them together; none if not every run measured them.
        culprits: phases that are slower, the worst first; none unless the whole is slower.
        noise, noise_source: standard deviation between the medians of two runs of one configuration, a share,
            and where it is from.
        block_length: iterations of a block of the bootstrap.
        smallest_visible: change of the whole that would just be more than noise.
        differences: facts and options in which the sides differ.
        fail_if_slower: as asked.
        is_failed: NEW is slower by more than noise and by more than `fail_if_slower`.
        could_be_slower: not failed, but the interval reaches beyond `fail_if_slower`.
    """

    basis: str
    unit: str
    iterations: int
    first_iteration: int
    last_iteration: int
    is_by_iteration: bool
    base_runs: list[RunEntry]
    new_runs: list[RunEntry]
    figures: list[Figure]
    whole: Row
    phases: list[Row]
    culprits: list[str]
    noise: float
    noise_source: str
    block_length: int
    smallest_visible: float
    differences: list[Difference]
    fail_if_slower: float | None
    is_failed: bool
    could_be_slower: bool

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; `comparison_version` first."""
        return {"comparison_version": COMPARISON_VERSION} | dict(finite(asdict(self)))


def compare(base: Sequence[Path], new: Sequence[Path], options: CompareOptions) -> Comparison:
    """Compares the run files of one side with those of the other.

    Raises PerfError for files that cannot be read or compared: too few iterations, sides that are not of one
    configuration, nothing that both did.
    """
    span = common_span([*base, *new])
    runs = [read_steps(path, options.warmup, span) for path in [*base, *new]]
    sides = runs[: len(base)], runs[len(base) :]
    check_sides(*sides)
    aligned = align(runs)
    basis = choose_basis([run.header.facts for run in runs], aligned)
    rows, cut = aligned.rows, len(base)
    is_rehearsal = bool(runs[0].header.facts.get("rehearsal"))
    judge = Judge(rows, basis, cut, _assumed(options, is_rehearsal))
    whole, phases = judge.whole(), judge.phases()
    entries = [
        RunEntry(str(run.path), run.header.session_id, middle, left_out, run.skipped_lines)
        for run, middle, left_out in zip(runs, judge.medians, aligned.left_out, strict=True)
    ]
    result = Comparison(
        basis=basis[0].name, unit=basis[0].unit,
        iterations=len(rows[0]), first_iteration=rows[0][0].iteration, last_iteration=rows[0][-1].iteration,
        is_by_iteration=aligned.is_by_iteration,
        base_runs=entries[:cut], new_runs=entries[cut:],
        figures=_figures(_side(sides[0], rows[:cut], basis[0]), _side(sides[1], rows[cut:], basis[-1])),
        whole=whole, phases=phases, culprits=_culprits(whole, phases),
        noise=judge.noise, noise_source=_noise_source(judge, options, is_rehearsal),
        block_length=judge.block_length, smallest_visible=judge.smallest_visible,
        differences=differences(*sides), fail_if_slower=options.fail_if_slower, is_failed=False, could_be_slower=False,
    )  # fmt: skip
    return _gated(result)


def _assumed(options: CompareOptions, is_rehearsal: bool) -> float:
    return options.noise if options.noise is not None else REHEARSAL_NOISE if is_rehearsal else NOISE


def _noise_source(judge: Judge, options: CompareOptions, is_rehearsal: bool) -> str:
    if judge.is_noise_seen:
        return "seen between the runs of each side"
    return (
        "--noise"
        if options.noise is not None
        else f"assumed for {'rehearsals on a CPU' if is_rehearsal else 'devices'}"
    )


def _gated(result: Comparison) -> Comparison:
    limit, whole = result.fail_if_slower, result.whole
    if limit is None or whole.share is None or whole.share_high is None:
        return result
    is_failed = whole.verdict == SLOWER and whole.share > limit
    return replace(result, is_failed=is_failed, could_be_slower=not is_failed and whole.share_high > limit)


def _culprits(whole: Row, phases: Sequence[Row]) -> list[str]:
    if whole.verdict != SLOWER:
        return []
    slower = [row for row in phases if row.verdict == SLOWER]
    return [row.name for row in sorted(slower, key=lambda row: -(row.change or 0))]


def _figures(base: dict[str, float | None], new: dict[str, float | None]) -> list[Figure]:
    return [Figure(name, value, new[name], _change(value, new[name])) for name, value in base.items()]


def _change(base: float | None, new: float | None) -> float | None:
    return None if new is None or not base else new / base - 1


def _side(runs: Sequence[RunSteps], rows: Sequence[list[Step]], basis: Basis) -> dict[str, float | None]:
    steps = [step for row in rows for step in row]
    elapsed_ns = sum(step.iteration_ns for step in steps)
    devices = devices_of(runs[0].header.facts)
    tokens = sum(step.tokens for step in steps)
    flops = [step.model_flops for step in steps if step.model_flops is not None]
    values = sorted(basis.of(step, step.iteration_ns) for step in steps)
    peaks = [run.memory_peak_bytes for run in runs if run.memory_peak_bytes is not None]
    return {
        "mean": bootstrap.mean(values),
        "p95": values[math.ceil(0.95 * len(values)) - 1],
        "tokens_per_s": per_second(tokens, elapsed_ns),
        "tokens_per_s_per_gpu": None if devices is None else per_second(tokens, elapsed_ns * devices),
        "tflops_per_gpu": tflops_per_gpu(sum(flops), elapsed_ns, devices)
        if len(flops) == len(steps)
        else None,
        "memory_peak_gb": as_gb(max(peaks, default=None)),
    }
