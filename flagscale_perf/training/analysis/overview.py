"""What ran, from the run header's facts: whatever another version or another program has put there is shown
or left out, never trusted.
"""

from __future__ import annotations

from collections.abc import Sequence

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.training.analysis.report import Node, Overview
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.summary.summary import Summary
from flagscale_perf.training.utilisation import FLOP_PER_TFLOP, Scale

SIZES = {
    "TP": "tensor_parallel",
    "PP": "pipeline_parallel",
    "DP": "data_parallel",
    "CP": "context_parallel",
    "EP": "expert_parallel",
}


def overview_of(
    summary: Summary, started: str, nodes: Sequence[tuple[str, list[int], list[str]]]
) -> Overview:
    """From the summary, the local time of the start, and what is known of the nodes."""
    info, facts = summary.session_info, RunFacts.of(summary.run_facts)
    scale = Scale.of(facts)
    sizes = {short: getattr(facts, name) for short, name in SIZES.items()}
    return Overview(
        session_id=info.session_id,
        end_reason=info.end_reason,
        started=started,
        ended=info.end_time.replace("T", " "),
        first_iteration=info.first_iteration,
        last_iteration=info.last_iteration,
        iterations=info.total_iterations,
        skipped_iterations=summary.totals.skipped_iterations,
        train_iters=facts.train_iters,
        resume_iteration=facts.resume_iteration,
        log_interval=PerfConfig.of(summary.config).perf_log_interval,
        host=facts.host or None,
        script=facts.script or None,
        hostname=facts.hostname or None,
        package_version=facts.package_version or None,
        restart_count=facts.restart_count,
        world_size=scale.world_size,
        device=facts.device or None,
        dtype=facts.dtype,
        parallel={short: size for short, size in sizes.items() if size is not None},
        pipeline_schedule=facts.pipeline_schedule,
        model_family=facts.model_family,
        seq_length=facts.seq_length,
        micro_batch_size=facts.micro_batch_size,
        global_batch_size=facts.global_batch_size,
        flops_convention=facts.flops_convention or None,
        peak_tflops=None if scale.peak_flop_per_s is None else scale.peak_flop_per_s / FLOP_PER_TFLOP,
        peak_source=facts.peak_source or None,
        missing=facts.missing,
        nodes=[
            Node(hostname, len(ranks), ranks[0], ranks[-1], devices) for hostname, ranks, devices in nodes
        ],
        config=summary.config,
    )
