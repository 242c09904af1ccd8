"""The settled steps in a report: its rates are theirs."""

from __future__ import annotations

from typing import NamedTuple

from flagscale_perf.analysis.blocks import Cell, Quantity
from flagscale_perf.training.analysis.report import Figures, TrainingReport
from flagscale_perf.training.summary.settled import SettledSummary


class Rates(NamedTuple):
    """Of some steps; None where not known."""

    mfu: float | None
    hfu: float | None
    tflops_per_gpu: float | None
    tokens_per_s: float | None
    samples_per_s: float | None
    iteration_ms: float | None
    p50_ms: float | None
    p95_ms: float | None


def rates_of(found: TrainingReport) -> Rates:
    """Of the settled steps; of all but the first where there is no slow start, or none that is known."""
    all_ = _of_all(found.figures)
    if not found.settled.has_slow_start:
        return all_
    settled = _of_settled(found.settled)
    if settled.mfu is None:  # suspect intervals are in no average of MFU
        settled = settled._replace(mfu=all_.mfu, hfu=all_.hfu)
    return settled


def state(settled: SettledSummary) -> Cell:
    """In words: from where on, and what the start took."""
    if settled.first_iteration is None:
        return f"not known: {settled.reason}; rates are of all iterations but the first"
    since = f"from iteration {settled.first_iteration:,} on"
    if not settled.has_slow_start:
        return since
    excess = Quantity(settled.excess_s, "s")
    return (f"{since}; the {settled.start_steps:,} before it take ", excess, " longer than usual")


def _of_all(figures: Figures) -> Rates:
    return Rates(*(getattr(figures, name) for name in Rates._fields))


def _of_settled(settled: SettledSummary) -> Rates:
    return Rates(
        mfu=settled.avg_mfu,
        hfu=settled.avg_hfu,
        tflops_per_gpu=settled.avg_tflops_per_gpu,
        tokens_per_s=settled.avg_throughput_tokens,
        samples_per_s=settled.avg_throughput_samples,
        iteration_ms=settled.avg_iteration_ms,
        p50_ms=settled.p50_iteration_ms,
        p95_ms=settled.p95_iteration_ms,
    )
