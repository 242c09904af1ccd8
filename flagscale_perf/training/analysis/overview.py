"""Says what ran, by the run header's facts, which are not trusted: another version may have written them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.spine.units import percent
from flagscale_perf.training.analysis.report import Node, Overview
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.summary.summary import Summary
from flagscale_perf.training.utilisation import FLOP_PER_TFLOP, Scale
from flagscale_perf.training.work import AS_RANK_0

SIZES = {
    "TP": "tensor_parallel",
    "PP": "pipeline_parallel",
    "DP": "data_parallel",
    "CP": "context_parallel",
    "EP": "expert_parallel",
}
# A recorded world size may be no number of devices.
_AS_RECORDED = {field.name for field in fields(Overview)} - {"world_size"}


def sizes_of(facts: RunFacts) -> dict[str, int]:
    """The parallel sizes that are known, by their short names."""
    sizes = {short: getattr(facts, name) for short, name in SIZES.items()}
    return {short: size for short, size in sizes.items() if size is not None}


def with_share(overview: Overview, share: float | None) -> Overview:
    """Says, where FLOPs follow from rank 0's documents, what `share` of that all ranks have counted."""
    if share is None:
        return overview
    told = f" (all ranks together counted {percent(share)} of that: multiply MFU and TFLOPS by it)"
    missing = [each + told if AS_RANK_0 in each else each for each in overview.missing]
    return replace(overview, missing=missing)


def overview_of(
    summary: Summary, started: str, nodes: Sequence[tuple[str, list[int], list[str]]]
) -> Overview:
    """The overview of a run. `started`: its local time. `nodes`: each one's name, ranks and devices."""
    info, facts = summary.session_info, RunFacts.of(summary.run_facts)
    scale = Scale.of(facts)
    known: dict[str, Any] = {name: None if value == "" else value for name, value in vars(facts).items()}
    known |= vars(info)
    return Overview(
        **{name: value for name, value in known.items() if name in _AS_RECORDED},
        started=started,
        ended=info.end_time.replace("T", " "),
        iterations=info.total_iterations,
        skipped_iterations=summary.totals.skipped_iterations,
        log_interval=PerfConfig.of(summary.config).perf_log_interval,
        world_size=scale.world_size,
        parallel=sizes_of(facts),
        peak_tflops=None if scale.peak_flop_per_s is None else scale.peak_flop_per_s / FLOP_PER_TFLOP,
        nodes=[
            Node(hostname, len(ranks), ranks[0], ranks[-1], devices) for hostname, ranks, devices in nodes
        ],
        config=summary.config,
    )
