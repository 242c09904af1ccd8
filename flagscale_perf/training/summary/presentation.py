"""How a training is shown: what its sinks need to know."""

from __future__ import annotations

from collections.abc import Iterator

from flagscale_perf.sinks.base import Presentation
from flagscale_perf.sinks.registry import VIEWS
from flagscale_perf.spine.records import Record, RunHeader
from flagscale_perf.spine.units import UNKNOWN, as_ms
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.figures import MEGATRON, TABLE
from flagscale_perf.training.rank_records import RanksRecord
from flagscale_perf.training.rates import as_gb
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


def _of_ranks(record: Record) -> Iterator[tuple[int, dict[str, float]]]:
    """Medians of a stretch; of ranks that share an entry under the number of the first. Rank 0's step is
    known interval by interval.
    """
    if not isinstance(record, RanksRecord):
        return
    columns = {
        f"{MEGATRON}step_duration_ms": map(as_ms, record.iteration_ns),
        "flagscale_perf.work_ms": map(as_ms, record.work_ns),
        "flagscale_perf.wait_ms": map(as_ms, record.wait_ns),
        "flagscale_perf.memory_peak_gb": map(as_gb, record.memory_peak_bytes),
    }
    for entry, row in enumerate(zip(*columns.values(), strict=True)):
        values = zip(columns, row, strict=True)
        known = {name: value for name, value in values if value is not None}
        if entry == 0:
            known.pop(f"{MEGATRON}step_duration_ms", None)
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
