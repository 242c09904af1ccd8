"""What ran, from the run header's facts: whatever another version or another program has put there is shown
or left out, never trusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flagscale_perf.training.analysis.report import Node, Overview
from flagscale_perf.training.summary import Summary
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
    info, facts, config = summary.session_info, summary.run_facts, summary.config
    scale, missing = Scale.of(facts), facts.get("missing")
    sizes = {short: _integer(facts, name) for short, name in SIZES.items()}
    return Overview(
        session_id=info.session_id,
        end_reason=info.end_reason,
        started=started,
        ended=info.end_time.replace("T", " "),
        first_iteration=info.first_iteration,
        last_iteration=info.last_iteration,
        iterations=info.total_iterations,
        skipped_iterations=summary.totals.skipped_iterations,
        train_iters=_integer(facts, "train_iters"),
        resume_iteration=_integer(facts, "resume_iteration"),
        log_interval=_integer(config, "perf_log_interval"),
        host=_text(facts, "host"),
        script=_text(facts, "script"),
        hostname=_text(facts, "hostname"),
        package_version=_text(facts, "package_version"),
        restart_count=_integer(facts, "restart_count"),
        world_size=scale.world_size,
        device=_text(facts, "device"),
        dtype=_text(facts, "dtype"),
        parallel={short: size for short, size in sizes.items() if size is not None},
        pipeline_schedule=_text(facts, "pipeline_schedule"),
        model_family=_text(facts, "model_family"),
        seq_length=_integer(facts, "seq_length"),
        micro_batch_size=_integer(facts, "micro_batch_size"),
        global_batch_size=_integer(facts, "global_batch_size"),
        flops_convention=_text(facts, "flops_convention"),
        peak_tflops=None if scale.peak_flop_per_s is None else scale.peak_flop_per_s / FLOP_PER_TFLOP,
        peak_source=_text(facts, "peak_source"),
        missing=[str(phrase) for phrase in missing] if isinstance(missing, list) else [],
        nodes=[
            Node(hostname, len(ranks), ranks[0], ranks[-1], devices) for hostname, ranks, devices in nodes
        ],
        config=config,
    )


def _text(values: Mapping[str, Any], name: str) -> str | None:
    value = values.get(name)
    return None if value is None else str(value)


def _integer(values: Mapping[str, Any], name: str) -> int | None:
    value = values.get(name)
    return value if type(value) is int else None
