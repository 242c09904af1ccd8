"""What a run was: its model, devices, nodes and options, as blocks."""

from __future__ import annotations

import json
from typing import Any

from flagscale_perf.analysis.blocks import Block, Cell, Pairs, Quantity, Table, span
from flagscale_perf.training.analysis.report import Overview, TrainingReport

_MOST_NODES = 10


def devices(seen: Overview) -> str:
    """Such as `8 x A100`."""
    size = "?" if seen.world_size is None else f"{seen.world_size:,}"
    return f"{size} x {seen.device or 'unknown device'}"


def facts(seen: Overview) -> list[tuple[str, Cell]]:
    """What one asks first of a run."""
    model = [part for part in (seen.model_family, seen.script and f"({seen.script})") if part]
    return [
        ("end", seen.end_reason),
        ("time", f"{seen.started} to {seen.ended}"),
        ("iterations", _iterations(seen)),
        ("model", " ".join(model) or None),
        ("host", " on ".join(part for part in (seen.host, seen.hostname) if part) or None),
        ("devices", devices(seen)),
        ("parallel", ", ".join(f"{name} {size}" for name, size in seen.parallel.items()) or None),
        ("data type", seen.dtype),
        ("FLOPs convention", seen.flops_convention),
        ("peak of a device", _peak(seen)),
        ("not available", "; ".join(seen.missing) or None),
    ]


def _peak(seen: Overview) -> Cell:
    peak = "not known" if seen.peak_tflops is None else Quantity(seen.peak_tflops, "TFLOP/s")
    return (peak, f" ({seen.peak_source})") if seen.peak_source else (peak,)


def _iterations(seen: Overview) -> str:
    if not seen.iterations:
        return "none finished"
    asked = "" if seen.train_iters is None else f" of {seen.train_iters:,}"
    return f"{seen.iterations:,} ({span(seen.first_iteration, seen.last_iteration)}){asked}"


def run(found: TrainingReport) -> list[Block]:
    """The rest of what is known of it: its shape, nodes, files and options."""
    seen = found.overview
    shape: dict[str, Any] = {
        "script": seen.script,
        "flagscale_perf": seen.package_version,
        "restarts": seen.restart_count,
        "resumed from": seen.resume_iteration,
        "log interval": seen.log_interval,
        "trained nothing": seen.skipped_iterations or None,
        "sequence length": seen.seq_length,
        "micro-batch": seen.micro_batch_size,
        "global batch": seen.global_batch_size,
        "schedule": seen.pipeline_schedule,
    }
    rows = [(name, str(value)) for name, value in shape.items() if value is not None]
    nodes = [
        (one.hostname, f"{one.ranks:,}", span(one.first_rank, one.last_rank), ", ".join(one.devices))
        for one in seen.nodes
    ]
    options = [
        (name, value if isinstance(value, str) else json.dumps(value)) for name, value in seen.config.items()
    ]
    tables = [
        Table(("node", "ranks", "numbers", "devices"), nodes, 0, f"Nodes ({len(nodes)})", _MOST_NODES, True),
        Table(("what", "file"), list(found.files.items()), 0, "Files", None, True),
        Table(("option", "value"), options, 0, f"Options in force ({len(options)})", None, True),
    ]
    return [Pairs(rows), *(table for table in tables if table.rows)]
