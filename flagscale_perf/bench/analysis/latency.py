"""Latency by sequence length and batch, as a report, a picture and a JSON file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flagscale_perf.analysis.blocks import Block, Cell, Line, Panel, Quantity, Section, Series, Table
from flagscale_perf.bench.analysis.collectives import COLOURS
from flagscale_perf.bench.analysis.served import MS, Group, Groups, Setting, groups_of, memory_of, remarks_of
from flagscale_perf.bench.analysis.shown import Shown
from flagscale_perf.bench.analysis.source import Part
from flagscale_perf.bench.names import LATENCY, SINGLE, THROUGHPUT, TPOT, TTFT

PERCENTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
HEAD = (
    *("arm", "batch", "prompt", "output", "first token, ms", "p95", "then each, ms", "p95", "whole, ms"),
    *("p95", "tokens/s", "repetitions +-"),
)


def _figures(part: Part) -> dict[str, Groups]:
    return {name: groups_of(part, name) for name in (TTFT, TPOT, LATENCY, THROUGHPUT)}


def _sections(part: Part) -> Sequence[Section]:
    found = _figures(part)
    rows = [_row(found, setting, group) for setting, group in found[LATENCY].items()]
    if not rows:
        return []
    return [Section("latency", "Latency", "Latency", [*_drawn(part), Table(HEAD, rows, 11)])]


def _row(found: Mapping[str, Groups], setting: Setting, whole: Group) -> Sequence[Cell]:
    made: list[Cell] = [
        setting.arm,
        *(Quantity(size) for size in (setting.batch, setting.seq, setting.output)),
    ]
    for figure in (TTFT, TPOT, LATENCY):
        group = found[figure].get(setting)
        for share in (0.5, 0.95):
            value = None if group is None else MS * group.percentile(share)
            made.append(Quantity(value, "", 2))
    speed = found[THROUGHPUT].get(setting)
    made.append(Quantity(None if speed is None else speed.value, "", 1))
    return [*made, Quantity(whole.noise, "share")]


def _drawn(part: Part) -> Sequence[Block]:
    """Curves over the prompt length, one for each batch and arm, for the longest output measured."""
    found = _figures(part)
    outputs = {setting.output for setting in found[LATENCY]}
    if not outputs:
        return []
    output = max(outputs)
    panels = [
        Panel(title, unit, _lines(found[figure], output, scale), begins_at_zero=True)
        for figure, title, unit, scale in (
            (TTFT, "Until the first token", "ms", MS),
            (TPOT, "For each further token", "ms", MS),
            (THROUGHPUT, "Tokens made", "tokens/s", 1.0),
        )
    ]
    panels = [panel for panel in panels if panel.lines]
    lengths = [setting.seq for setting in found[LATENCY]]
    span = float(min(lengths)), float(max(max(lengths), min(lengths) + 1))
    title = f"Latency by length of the prompt, {output} tokens of output"
    return [Series("latency", title, panels, "tokens of the prompt", span)]


def _lines(groups: Groups, output: int, scale: float) -> list[Line]:
    made: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for setting, group in groups.items():
        if setting.output == output:
            made.setdefault((setting.arm, setting.batch), []).append((setting.seq, scale * group.value))
    batches = sorted({batch for _, batch in made})
    return [
        Line(
            f"batch {batch}" if arm == SINGLE else f"{arm}, batch {batch}",
            [float(seq) for seq, _ in points],
            [value for _, value in points],
            COLOURS[batches.index(batch) % len(COLOURS)],
            "line" if arm == SINGLE else "dashed",
        )
        for (arm, batch), points in made.items()
    ]


def _content(part: Part) -> Mapping[str, Any]:
    """One entry per setting; times in seconds."""
    found, memory = _figures(part), memory_of(part)
    results = []
    for setting, whole in found[LATENCY].items():
        entry = setting.as_dict() | {
            "mean_latency_s": whole.mean,
            "repetitions": len(whole.medians),
            "noise_share": whole.noise,
        }
        for figure, name in ((LATENCY, "latency"), (TTFT, "ttft"), (TPOT, "tpot")):
            group = found[figure].get(setting)
            for label, share in PERCENTILES:
                entry[f"{name}_{label}_s"] = None if group is None else group.percentile(share)
        speed = found[THROUGHPUT].get(setting)
        entry["tokens_per_second"] = None if speed is None else speed.value
        entry["memory_gb"] = memory.get(setting.arm)
        results.append(entry)
    return {"results": results}


SHOWN = Shown("latency", "latency_analysis", _sections, _drawn, _content, remarks_of)
