"""How a training is shown: what its sinks need to know."""

from __future__ import annotations

from flagscale_perf.sinks.base import Presentation
from flagscale_perf.sinks.registry import VIEWS
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.spine.units import UNKNOWN
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.figures import TABLE
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


PRESENTATION = Presentation(
    "Performance Monitor", TABLE, _basis, RunTotals, RunMetrics, views=(*VIEWS, FindingsSink)
)
