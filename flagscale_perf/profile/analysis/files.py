"""The files that the requirement names, with its JSON keys and pictures.

JSON keeps the requirement's keys, with times in seconds over all profiled steps of a mean rank, and adds what
they mean: base, unit, observer, residual, coverage, versions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from flagscale_perf.analysis.blocks import Block, Note, Report, Section
from flagscale_perf.profile.analysis import blocks, drawn
from flagscale_perf.profile.analysis.operators import HOST, part_of
from flagscale_perf.profile.analysis.report import BASE, ProfileReport
from flagscale_perf.profile.analysis.sums import Cell
from flagscale_perf.profile.analysis.waits import Waits
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.facts import words_of
from flagscale_perf.spine.jsonl import finite

TIMINGS, SUMS, ANALYSIS, COMM, WHOLE = (
    *("detailed_timings.csv", "operator_sums.csv", "analysis_report.json", "comm_analysis.json"),
    "comprehensive_report.json",
)
BOTTLENECKS = "performance_bottlenecks"  # the picture below which the findings are written


def analysis_report(found: ProfileReport) -> dict[str, Any]:
    """Content of `analysis_report.json`."""
    made = _common(found) | {
        "count_unit": "calls of a module in layer_breakdown, runs of operators in operation_breakdown",
        "layer_breakdown": {},
        "operation_breakdown": {},
    }
    for sums in found.sums.values():
        steps = sums.mean.steps
        modules: dict[str, list[Cell]] = defaultdict(list)
        for cell in sums.cells:
            for path in _around(cell.module):
                modules[path].append(cell)
        for path, cells in modules.items():
            entry: dict[str, Any] = {"total_time": 0.0, "avg_time": None, "count": 0.0, "operations": {}}
            _add(made["layer_breakdown"].setdefault(path, entry), path, cells, steps)
        for kind, one in sums.by(lambda cell: cell.kind).items():
            entry = made["operation_breakdown"].setdefault(kind, {"total_time": 0.0, "count": 0.0})
            entry["total_time"] += one.self_ns * steps / NS_PER_S
            entry["count"] += one.runs * steps
    for entry in made["layer_breakdown"].values():
        entry["count"] = round(entry["count"])
        entry["avg_time"] = entry["total_time"] / entry["count"] if entry["count"] else None
    return dict(finite(made))


def _around(module: str) -> Sequence[str]:
    parts = module.split(".") if module else []
    return [".".join(parts[: place + 1]) for place in range(len(parts))]


def _add(entry: dict[str, Any], path: str, cells: Sequence[Cell], steps: int) -> None:
    """Adds the cells of a module and of those in it; its own Python runs once for each of its calls."""
    ranks = len({cell.rank for cell in cells})
    for cell in cells:
        if cell.module == path and cell.kind == HOST and not cell.op:
            entry["count"] += cell.runs * steps / ranks
        seconds = cell.self_ns * steps / ranks / NS_PER_S
        part = part_of(cell.module, cell.kind)
        entry["total_time"] += seconds
        entry["operations"][part] = entry["operations"].get(part, 0.0) + seconds


def comm_analysis(found: ProfileReport) -> dict[str, Any]:
    """Content of `comm_analysis.json`."""
    ranks = max(1, len(found.profile.ranks))
    exposed_ns = found.communication.exposed_ns
    total_s = sum(exposed_ns.values()) / ranks / NS_PER_S
    whole_s = sum(sums.mean.total * sums.mean.steps for sums in found.sums.values()) / NS_PER_S
    waits: dict[str, list[Waits]] = {op: [] for op in exposed_ns}
    for one in found.communication.waits:
        waits[one.operation].append(one)
    by_operation = {
        op: {
            "count": sum(one.runs for one in own) / ranks,
            "total_time": exposed_ns[op] / ranks / NS_PER_S,
            "wait_time": sum(one.exposed_waiting_ns for one in own) / ranks / NS_PER_S,
            "transfer_time": sum(one.exposed_transfer_ns for one in own) / ranks / NS_PER_S,
            "hidden_time": sum(one.hidden_ns for one in own) / ranks / NS_PER_S,
            "total_bytes": _whole([one.size_bytes for one in own], ranks),
            "avg_bandwidth_gbps": _mean_speed(own),
        }
        for op, own in waits.items()
    }
    analysis = {
        "total_comm_time": total_s,
        "comm_percentage": 100 * total_s / whole_s if whole_s else None,
        "by_operation_type": by_operation,
    }
    return dict(
        finite(
            _common(found)
            | {
                "communication_analysis": analysis,
                "time_unit": "s in which the rank did nothing else; hidden_time comes beside other work. "
                "wait, transfer and hidden are of those operations that are split",
                "bandwidth_unit": "GB/s (10^9 bytes): bus bandwidth as nccl-tests counts it, by the time "
                "without waiting, by the transfers of those operations that are split",
            }
        )
    )


def _whole(sizes: Sequence[int | None], ranks: int) -> float | None:
    """Their sum on a mean rank; None where one is not known."""
    known = [size for size in sizes if size is not None]
    return sum(known) / ranks if len(known) == len(sizes) else None


def _mean_speed(waits: Sequence[Waits]) -> float | None:
    """Bus bandwidth of the transfers together."""
    speed, weight = None, 0
    for one in waits:
        if one.busbw_gb_per_s is not None:
            before = (speed or 0.0) * weight
            weight += one.transfer_ns
            speed = (before + one.busbw_gb_per_s * one.transfer_ns) / weight
    return speed


def _common(found: ProfileReport) -> dict[str, Any]:
    return {
        "base": f"all profiled steps of {BASE.removeprefix('the mean profiled step of ')}",
        "unit": "s",
        "steps": {phase: sums.mean.steps for phase, sums in found.sums.items()},
        "observer": {phase: one.as_dict() for phase, one in found.observers.items()},
        "residual": {
            phase: sums.mean.residual * sums.mean.steps / NS_PER_S for phase, sums in found.sums.items()
        },
        "coverage": {phase: sums.mean.coverage for phase, sums in found.sums.items()},
        "versions": words_of(found.profile.session.header.facts.get("versions")),
    }


def comprehensive_report(found: ProfileReport) -> dict[str, Any]:
    """Content of `comprehensive_report.json`."""
    analysis, comm = analysis_report(found), comm_analysis(found)
    return analysis | comm | {"report": found.as_dict()}


def pictures(found: ProfileReport) -> Mapping[str, Report]:
    """Each picture's blocks by name; a text says why where there is nothing to draw."""
    whole = blocks.report_of(found)
    empty = "Nothing was profiled."
    no_memory = "No memory was recorded: profile with memory on."
    alone = "No collective ran in the profiled steps: one rank, or no parallelism."
    drawings = {
        "layer_performance_heatmap": (_of(found, drawn.layers), empty),
        "operation_time_distribution": (_of(found, drawn.operators), empty),
        "compute_vs_communication": (_of(found, drawn.books), empty),
        "memory_usage_analysis": (drawn.memory(found), no_memory),
        BOTTLENECKS: (_of(found, drawn.roofline) + _of(found, drawn.longest), empty),
        "bandwidth_analysis": (blocks.communication(found), alone),
    }
    return {
        name: _picture(whole, name, made or [Note(why_empty)]) for name, (made, why_empty) in drawings.items()
    }


def _of(found: ProfileReport, make: drawn.Maker) -> list[Block]:
    return [block for sums in found.sums.values() for block in make(found, sums)]


def _picture(whole: Report, name: str, made: Sequence[Block]) -> Report:
    title = name.replace("_", " ").capitalize()
    return Report(
        title=f"{title}: {whole.subject}",
        facts=[],
        sections=[Section(name, title, title, made)],
        content=whole.content,
        findings=whole.findings if name == BOTTLENECKS else None,
    )


def readme(found: ProfileReport, whole: Report, shown: Sequence[str]) -> str:
    """`README.md` of the run, up to where the report as Markdown (`markdown.render`) is appended."""
    observer = "\n".join(f"- profiling a {phase} step: {one.words}" for phase, one in found.observers.items())
    coverage = "\n".join(
        f"- a {phase} step takes {sums.mean.total / 1e6:.3f} ms; its rows account for"
        f" {100 * (sums.mean.coverage or 0.0):.1f} %, the residual is {sums.mean.residual / 1e6:.3f} ms"
        for phase, sums in found.sums.items()
    )
    said = "\n".join(f"{place}. {one.title}" for place, one in enumerate(found.findings, 1))
    none = "" if whole.findings is None else f"{whole.findings.none_found.capitalize()}."
    pictures_of = "\n\n".join(f"![{name}]({name}.png)" for name in shown)
    names = "\n".join(f"- `{name}`: {about}" for name, about in ABOUT.items())
    return (
        f"# {whole.title}\n\n{whole.subject}\n\n## How far to trust it\n\n{coverage}\n{observer}\n\n"
        f"## Findings\n\n{said or none}\n\n## Files\n\n{names}\n\n{pictures_of}\n"
    )


ABOUT = {
    TIMINGS: "each run of each operator in each profiled step on each rank, in nanoseconds",
    SUMS: "each operator of each module on each rank, for one step, in nanoseconds",
    ANALYSIS: "time by module and by kind of work, in seconds over all profiled steps of a mean rank",
    COMM: "collectives by operation, with bus bandwidth",
    WHOLE: "both, and everything that the report shows",
    "report.html": "everything, as a page",
}
