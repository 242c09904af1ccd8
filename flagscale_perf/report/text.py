"""A run's summary as aligned text."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from flagscale_perf.analysis.summary import RunSummary
from flagscale_perf.core.printable import UNKNOWN, number, printable
from flagscale_perf.core.rank_text import name_ranks, name_steps
from flagscale_perf.core.utilisation import FLOP_PER_TFLOP, Scale

_LABEL_WIDTH = 16
_PHASE_WIDTH = 26
_SIZES = {
    "tensor_parallel": "TP",
    "pipeline_parallel": "PP",
    "data_parallel": "DP",
    "context_parallel": "CP",
    "expert_parallel": "EP",
}

_CLASSES = {
    "start-up": "startup_s",
    "productive": "productive_s",
    "evaluation": "evaluation_s",
    "checkpoint": "checkpoint_s",
    "data stall": "data_stall_s",
    "lost": "lost_s",
    "idle, other": "idle_s",
}

Row = tuple[str, str]


def render_summary(run: RunSummary) -> str:
    """The whole text, newline at the end; no character in it can move a terminal's cursor."""
    summary = run.summary
    blocks = [
        block(f"Run {summary['session_info']['session_id']}", _overview(summary)),
        block("Rates, without the first iteration", _rates(summary)),
        block("Times", _times(summary)),
        block("Totals", _totals(summary)),
        *_phase_blocks(summary),
        *_rank_blocks(summary["ranks"]),
        block("Goodput of this session", goodput_rows(summary["goodput"])),
        block("Memory of rank 0's device", _memory(summary)),
        block("Hardware of rank 0's device", _hardware(summary["hardware"])),
        block("Files", [(kind, name) for kind, name in summary["files"].items()]),
    ]
    if summary["failure_count"] or summary["dropped_records"]:
        blocks.append(block("Failures of the monitor", _failures(summary)))
    if run.skipped:
        blocks.append(block(f"{run.skipped} lines of {run.path} are no records", _bad_lines(run)))
    return "\n".join(blocks)


def block(title: str, rows: Iterable[Row], width: int = _LABEL_WIDTH) -> str:
    """A title and its rows, labels aligned in so many columns."""
    lines = [f"  {printable(label):<{width}}{printable(value)}".rstrip() + "\n" for label, value in rows]
    return printable(title) + "\n" + "".join(lines)


def _overview(summary: dict[str, Any]) -> list[Row]:
    info, facts = summary["session_info"], summary["run_facts"]
    sizes = [f"{short} {facts[name]}" for name, short in _SIZES.items() if facts.get(name) is not None]
    missing = facts.get("missing")
    rows = [
        ("end", _known(info["end_reason"])),
        ("from", f"{_started(info['start_time'])} to {info['end_time'].replace('T', ' ')}"),
        ("iterations", f"{info['total_iterations']} ({_known(info['first_iteration'])} to {_known(info['last_iteration'])})"),
        ("skipped", str(summary["totals"]["skipped_iterations"])),
        ("script", f"{_known(facts.get('script'))} on {_known(facts.get('hostname'))}, {_known(facts.get('host'))}"),
        ("devices", f"{_known(info['world_size'])} x {_known(facts.get('device'))}, {_known(facts.get('dtype'))}"),
        ("parallel", ", ".join(sizes) or UNKNOWN),
    ]
    return rows + [("not available", str(phrase)) for phrase in (missing if isinstance(missing, list) else [])]


def _rates(summary: dict[str, Any]) -> list[Row]:
    statistics, convention = summary["final_statistics"], _known(summary["session_info"]["flops_convention"])
    low, high = number(statistics["min_tflops_per_gpu"], 2), number(statistics["max_tflops_per_gpu"], 2)
    return [
        ("TFLOPS/GPU", f"{number(statistics['avg_tflops_per_gpu'], 2)} (intervals: {low} to {high})"),
        ("MFU", _share(statistics["avg_mfu"], convention)),
        ("HFU", _share(statistics["avg_hfu"], convention)),
        *_basis(summary),
        ("tokens/s", number(statistics["avg_throughput_tokens"], 0)),
        ("samples/s", number(statistics["avg_throughput_samples"], 1)),
        ("peak memory", _with_unit(statistics["peak_memory_gb"], 2, "GB")),
    ]


def _share(share: float | None, convention: str) -> str:
    return UNKNOWN if share is None else f"{_percent(share)} ({convention})"


def _basis(summary: dict[str, Any]) -> list[Row]:
    """Of what MFU and HFU are shares, and what keeps them from being known or true."""
    facts, suspects = summary["run_facts"], summary["final_statistics"]["suspect_intervals"]
    peak = Scale.of(facts).peak_flop_per_s
    figure = UNKNOWN if peak is None else f"{peak / FLOP_PER_TFLOP:g} TFLOP/s"
    rows = [("peak", f"{figure}, {_known(facts.get('dtype'))} ({_known(facts.get('peak_source'))})")]
    if suspects:
        rows.append(("suspect", f"intervals above the peak: {suspects}; in no average; check --perf-peak-tflops and the data type"))
    return rows


def _times(summary: dict[str, Any]) -> list[Row]:
    statistics, totals = summary["final_statistics"], summary["totals"]
    quantiles = ", ".join(f"{name} {number(statistics[f'{name}_iteration_ms'], 1)}" for name in ("p50", "p95", "max"))
    return [
        ("iteration", f"{_with_unit(statistics['avg_iteration_ms'], 1, 'ms')} ({quantiles})"),
        ("first iteration", _with_unit(statistics["first_iteration_ms"], 1, "ms")),
        ("training", _with_unit(totals["train_s"], 1, "s")),
        ("evaluation", _with_unit(totals["eval_s"], 1, "s")),
        ("checkpoints", _with_unit(totals["checkpoint_s"], 1, "s")),
        ("monitor itself", _percent(statistics["self_cost_share"])),
    ]


def _phase_blocks(summary: dict[str, Any]) -> list[str]:
    phases, bubble = summary["phases"], summary["bubble"]
    if not phases["steps"]:
        return []
    rows = [
        (name.replace("_", " "), f"{_percent(phases['share'][name]):>8}  {_with_unit(total_s, 1, 's')}")
        for name, total_s in phases["total_s"].items()
        if total_s is not None
    ]
    if bubble["bubble_s"] is not None:
        rows += [
            (f"of the wait: {kind}", f"{_percent(bubble[f'{kind}_share']):>8}  {_with_unit(bubble[f'{kind}_s'], 1, 's')}")
            for kind in ("bubble", "imbalance")
        ]
    return [block(f"Phases of {phases['steps']} iterations, without the first", rows, _PHASE_WIDTH)]


def _rank_blocks(ranks: dict[str, Any]) -> list[str]:
    blocks = []
    if ranks["heard"] is not None:
        silent = f"; silent at the end: {ranks['silent_count']} ({name_ranks(ranks['silent'])})" if ranks["silent"] else ""
        slowest, fullest = ranks["slowest_ranks"], ranks["peak_memory_ranks"]
        rows = [
            ("heard", f"{ranks['heard']} on {_known(ranks['nodes'])} nodes{silent}"),
            (
                "work",
                f"{_with_unit(ranks['median_work_ms'], 1, 'ms')} a step (median), {_percent(ranks['wait_share'])} of the time is waiting",
            ),
            ("most work", UNKNOWN if slowest is None else f"{name_ranks(slowest)}: {_with_unit(ranks['slowest_work_ms'], 1, 'ms')}"),
            ("spread", _percent(ranks["work_spread"])),
            ("peak memory", f"{_with_unit(ranks['peak_memory_gb'], 2, 'GB')}" + ("" if fullest is None else f" ({name_ranks(fullest)})")),
        ]
        blocks.append(block("Ranks", rows))
    if ranks["stragglers"]:
        rows = [_straggler(straggler) for straggler in ranks["stragglers"]]
        left_out = ranks["straggler_count"] - len(rows)
        blocks.append(block("Slow ranks", rows + ([("", f"and {left_out} more")] if left_out > 0 else []), _PHASE_WIDTH))
    return blocks


def _straggler(straggler: dict[str, Any]) -> Row:
    who = f"stage {straggler['stage']}" if straggler["against"] == "stages" else name_ranks(straggler["ranks"])
    place = f"{who} ({straggler['hostname']}, {straggler['device']})"
    cause = f", {straggler['cause']}" if straggler["cause"] else ""
    text = f"{place}: {_with_unit(straggler['excess_ms'], 1, 'ms')} in {straggler['phase']} against {straggler['against']}{cause}"
    return name_steps(straggler["first_iteration"], straggler["iteration"]), text


def _totals(summary: dict[str, Any]) -> list[Row]:
    totals = summary["totals"]
    return [
        ("samples", f"{totals['samples']} trained, {totals['skipped_samples']} skipped"),
        ("tokens", str(totals["tokens"])),
        ("model FLOPs", f"{_flops(totals['model_flops'])} ({_known(summary['session_info']['flops_convention'])})"),
    ]


def goodput_rows(goodput: dict[str, Any]) -> list[Row]:
    """Each class with its share of the wall time, and the productive share again as what it is called."""
    wall_s = goodput["wall_s"]
    rows = [("wall time", _with_unit(wall_s, 1, "s"))]
    for label, key in _CLASSES.items():
        value = goodput[key]
        share = f" ({number(value / wall_s * 100, 1)} %)" if value is not None and wall_s else ""
        rows.append((label, _with_unit(value, 1, "s") + share))
    return rows + [("ETTR", number(goodput["ettr"], 3))]


def _memory(summary: dict[str, Any]) -> list[Row]:
    memory = summary["memory"]
    if memory["reserved_peak_gb"] is None:
        return [("counters", "not read")]
    share, left = memory["fragmentation"], memory["out_of_memory_in_steps"]
    return [
        ("peak", _with_unit(summary["final_statistics"]["peak_memory_gb"], 2, "GB")),
        ("reserved", f"{_with_unit(memory['reserved_peak_gb'], 2, 'GB')} of {_with_unit(memory['device_gb'], 2, 'GB')}"),
        ("fragmentation", _percent(share)),
        ("alloc retries", _known(memory["alloc_retries"])),
        ("out of memory", "not in sight" if left is None else f"in {left} steps at the latest, if the peak goes on growing"),
    ]


def _hardware(hardware: dict[str, Any]) -> list[Row]:
    throttle = hardware["throttle"]
    if all(value is None for value in hardware.values()):
        return [("counters", "not read")]
    return [
        ("power", _with_unit(hardware["power_w"], 1, "W")),
        ("energy", f"{_with_unit(hardware['energy_j'], 1, 'J')} in {_with_unit(hardware['energy_read_s'], 1, 's')}"),
        ("tokens/J", f"{number(hardware['tokens_per_joule'], 3)} ({_with_unit(hardware['joules_per_token'], 3, 'J')}/token)"),
        ("lowest SM clock", _with_unit(hardware["min_sm_clock_mhz"], 0, "MHz")),
        ("temperature", _with_unit(hardware["max_temperature_c"], 0, "C at most")),
        ("clocks capped", UNKNOWN if throttle is None else ", ".join(map(str, throttle)) or "never"),
        ("errors", f"{_known(hardware['ecc_uncorrected'])} of memory, {_known(hardware['xid_readings'])} XID"),
        ("PCIe", f"generation {_known(hardware['pcie_generation'])} x{_known(hardware['pcie_width'])}"),
        ("PCIe replays", _known(hardware["pcie_replays"])),
        ("NVLinks", f"{_known(hardware['nvlinks_active'])} active"),
    ]


def _failures(summary: dict[str, Any]) -> list[Row]:
    rows = [(failure["timestamp"][11:], f"iteration {failure['iteration']}: {failure['text']}") for failure in summary["failures"]]
    unlisted = summary["failure_count"] - len(rows)
    if unlisted:
        rows.append(("", f"and {unlisted} more"))
    if summary["dropped_records"]:
        rows.append(("lost", f"{summary['dropped_records']} records"))
    return rows


def _bad_lines(run: RunSummary) -> list[Row]:
    rows = [(f"line {bad.number}", bad.reason) for bad in run.bad_lines]
    return rows if len(rows) == run.skipped else [*rows, ("", f"and {run.skipped - len(rows)} more")]


def _with_unit(value: float | None, decimals: int, unit: str) -> str:
    return UNKNOWN if value is None else f"{number(value, decimals)} {unit}"


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{number(share * 100, 1)} %"


def _started(start_time: str) -> str:
    return datetime.strptime(start_time, "%Y%m%d_%H%M%S").isoformat(sep=" ")


def _flops(flops: int | None) -> str:
    return UNKNOWN if flops is None else f"{flops:.4g}"


def _known(value: Any) -> str:
    return UNKNOWN if value is None else str(value)
