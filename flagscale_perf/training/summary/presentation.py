"""How a training is shown: what its sinks need to know."""

from __future__ import annotations

from collections.abc import Iterator

from flagscale_perf.sinks.base import Presentation
from flagscale_perf.sinks.registry import VIEWS
from flagscale_perf.spine.figures import GIBIBYTES, OtlpMetric
from flagscale_perf.spine.records import Record, RunHeader
from flagscale_perf.spine.units import UNKNOWN, as_ms
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.figures import MEMORY_ALLOCATED, STEP_DURATION, TABLE
from flagscale_perf.training.rank_records import RanksRecord
from flagscale_perf.training.summary.findings_file import FindingsSink
from flagscale_perf.training.summary.metrics import RunMetrics
from flagscale_perf.training.summary.totals import RunTotals
from flagscale_perf.training.utilisation import FLOP_PER_TFLOP, Scale


def _basis(header: RunHeader) -> list[str]:
    facts = RunFacts.of(header.facts)
    peak = Scale.of(facts).peak_flop_per_s
    figure = UNKNOWN if peak is None else f"{peak / FLOP_PER_TFLOP:g} TFLOP/s"
    counted = f"FLOPs {facts.flops_convention}, {facts.dtype or UNKNOWN}"
    return [f"{counted}; peak of a device {figure} ({facts.peak_source})"]


def _of_ranks(record: Record) -> Iterator[tuple[int, dict[OtlpMetric, float]]]:
    """Medians of a stretch; of ranks that share an entry under the number of the first. Rank 0's step and
    memory are known interval by interval.
    """
    if not isinstance(record, RanksRecord):
        return
    columns = {
        STEP_DURATION: map(as_ms, record.iteration_ns),
        OtlpMetric("flagscale_perf.work_ms"): map(as_ms, record.work_ns),
        OtlpMetric("flagscale_perf.wait_ms"): map(as_ms, record.wait_ns),
        MEMORY_ALLOCATED: map(GIBIBYTES.of, record.memory_peak_bytes),
    }
    for entry, row in enumerate(zip(*columns.values(), strict=True)):
        values = zip(columns, row, strict=True)
        is_known_better = {STEP_DURATION, MEMORY_ALLOCATED} if entry == 0 else set()
        known = {
            metric: value
            for metric, value in values
            if isinstance(value, int | float) and metric not in is_known_better
        }
        yield entry * record.ranks_per_entry, known


PRESENTATION = Presentation(
    "Performance Monitor",
    TABLE,
    _basis,
    RunTotals,
    RunMetrics,
    views=(*VIEWS, FindingsSink),
    of_ranks=_of_ranks,
)
