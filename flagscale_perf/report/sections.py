"""A report as titled tables of text, the same for every format that is made of lines. Rounds and puts units;
computes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flagscale_perf.analysis.report import Overview, Report
from flagscale_perf.analysis.rules import Evidence, Finding
from flagscale_perf.spine.units import UNKNOWN, number
from flagscale_perf.training.analysis.tables import (
    GoodputBar,
    Hardware,
    Memory,
    Monitor,
    Phases,
    Ranks,
    Reading,
    Straggler,
)

MAX_RANKS = 16
MAX_SHOWN = 10

Row = Sequence[str]
Pair = tuple[str, str]


@dataclass(frozen=True)
class Section:
    """A title and rows of cells; the first cell is a label. `head` names the columns of a table, empty for
    pairs of label and value.
    """

    title: str
    rows: Sequence[Row]
    head: tuple[str, ...] = ()


def sections_of(report: Report) -> list[Section]:
    """Everything but the findings, in the order of reading; what nothing is known of is left out."""
    found = [
        Section(f"Run {report.overview.session_id}", _overview(report.overview)),
        Section("Rates, without the first iteration", _rates(report)),
        Section("Times", _times(report)),
        Section("Totals", _totals(report)),
        *_phase_sections(report.phases),
        *_rank_sections(report.ranks),
        *_straggler_sections(report.stragglers),
        Section("Goodput of this session", goodput_rows(report.goodput)),
        Section("Memory of rank 0's device", _memory(report.memory)),
        Section("Hardware of rank 0's device", _hardware(report.hardware)),
        Section("Files", [(kind, name) for kind, name in report.files.items()]),
        *_monitor_sections(report.monitor),
        *_reading_sections(report.reading),
    ]
    return [section for section in found if section.rows]


def finding_rows(finding: Finding) -> list[Pair]:
    """What is below a finding's title."""
    rows = [("costs", cost_of(finding))]
    rows += [("evidence", _evidence(each)) for each in finding.evidence]
    if finding.first_iteration is not None and finding.iteration is not None:
        rows.append(("iterations", f"{finding.first_iteration} to {finding.iteration}"))
    rows.append(("likely causes", "; ".join(finding.causes)))
    return rows + [
        ("change", f"{' '.join(change.flags)}: {change.text}" if change.flags else change.text)
        for change in finding.changes
    ]


def cost_of(finding: Finding) -> str:
    """In words, with the gain."""
    if finding.cost_s is None:
        return "nothing yet, or not known"
    share = "" if finding.cost_share is None else f", {percent(finding.cost_share)} of the wall time"
    gain = "" if finding.gain is None else f"; without it at most +{percent(finding.gain)} {finding.gain_of}"
    return f"{with_unit(finding.cost_s, 1, 's')}{share}{gain}"


def goodput_rows(goodput: GoodputBar) -> list[Pair]:
    """Each class with its share of the wall time, and the productive share again as what it is called."""
    rows = [("wall time", with_unit(goodput.wall_s, 1, "s"))]
    rows += [
        (
            part.label,
            with_unit(part.dur_s, 1, "s") + ("" if part.share is None else f" ({percent(part.share)})"),
        )
        for part in goodput.parts
    ]
    return [*rows, ("ETTR", number(goodput.ettr, 3))]


def with_unit(value: float | None, decimals: int, unit: str) -> str:
    """A figure with its unit, "-" for None."""
    return UNKNOWN if value is None else f"{number(value, decimals)} {unit}"


def percent(share: float | None) -> str:
    """A share as text."""
    return UNKNOWN if share is None else f"{number(share * 100, 1)} %"


def known(value: object) -> str:
    """As text, "-" for None."""
    return UNKNOWN if value is None else str(value)


def _evidence(evidence: Evidence) -> str:
    value, limit = (_figure(figure, evidence.unit) for figure in (evidence.value, evidence.limit))
    return f"{evidence.figure}: {value}, limit {limit} ({evidence.source})"


def _figure(value: float, unit: str) -> str:
    return percent(value) if unit == "share" else f"{value:.4g} {unit}".rstrip()


def _overview(overview: Overview) -> list[Pair]:
    sizes = ", ".join(f"{short} {size}" for short, size in overview.parallel.items())
    rows = [
        ("end", overview.end_reason),
        ("from", f"{overview.started} to {overview.ended}"),
        (
            "iterations",
            f"{overview.iterations} ({known(overview.first_iteration)} to {known(overview.last_iteration)})",
        ),
        ("skipped", str(overview.skipped_iterations)),
        ("script", f"{known(overview.script)} on {known(overview.hostname)}, {known(overview.host)}"),
        ("devices", f"{known(overview.world_size)} x {known(overview.device)}, {known(overview.dtype)}"),
        ("parallel", sizes or UNKNOWN),
    ]
    rows += [
        (
            "node",
            f"{node.hostname}: {node.ranks} ranks, {node.first_rank} to {node.last_rank}, {', '.join(node.devices)}",
        )
        for node in overview.nodes[:MAX_SHOWN]
    ]
    return (
        rows
        + _more(len(overview.nodes), MAX_SHOWN)
        + [("not available", phrase) for phrase in overview.missing]
    )


def _rates(report: Report) -> list[Pair]:
    figures, overview = report.figures, report.overview
    convention = known(overview.flops_convention)
    low, high = number(figures.min_tflops_per_gpu, 2), number(figures.max_tflops_per_gpu, 2)
    peak = UNKNOWN if overview.peak_tflops is None else f"{overview.peak_tflops:g} TFLOP/s"
    rows = [("TFLOPS/GPU", f"{number(figures.tflops_per_gpu, 2)} (intervals: {low} to {high})")]
    for name, share in (("MFU", figures.mfu), ("HFU", figures.hfu)):
        rows.append((name, UNKNOWN if share is None else f"{percent(share)} ({convention})"))
    rows.append(("peak", f"{peak}, {known(overview.dtype)} ({known(overview.peak_source)})"))
    if figures.suspect_intervals:
        doubt = f"intervals above the peak: {figures.suspect_intervals}; in no average; check --perf-peak-tflops and the data type"
        rows.append(("suspect", doubt))
    return [
        *rows,
        ("tokens/s", number(figures.tokens_per_s, 0)),
        ("samples/s", number(figures.samples_per_s, 1)),
        ("peak memory", with_unit(report.memory.peak_gb, 2, "GB")),
    ]


def _times(report: Report) -> list[Pair]:
    figures, trend = report.figures, report.trend
    quantiles = (
        f"p50 {number(figures.p50_ms, 1)}, p95 {number(figures.p95_ms, 1)}, max {number(figures.max_ms, 1)}"
    )
    rows = [
        ("iteration", f"{with_unit(figures.iteration_ms, 1, 'ms')} ({quantiles})"),
        ("first iteration", with_unit(figures.first_iteration_ms, 1, "ms")),
        ("training", with_unit(figures.train_s, 1, "s")),
        ("evaluation", with_unit(figures.eval_s, 1, "s")),
        ("checkpoints", with_unit(figures.checkpoint_s, 1, "s")),
        ("monitor itself", percent(report.monitor.self_cost_share)),
    ]
    if trend.slow_steps:
        rows.append(
            (
                "slow steps",
                f"{trend.slow_step_count}, together {with_unit(trend.slow_excess_s, 1, 's')} longer than usual",
            )
        )
        longest = sorted(trend.slow_steps, key=lambda step: step.iteration_ms, reverse=True)
        shown = [
            f"{step.iteration} ({number(step.iteration_ms, 1)} ms, usual {number(step.usual_ms, 1)})"
            for step in longest[: MAX_SHOWN // 2]
        ]
        rows.append(("slowest", ", ".join(shown)))
    return rows


def _totals(report: Report) -> list[Pair]:
    figures = report.figures
    flops = UNKNOWN if figures.model_flops is None else f"{figures.model_flops:.4g}"
    return [
        ("samples", f"{figures.samples} trained, {figures.skipped_samples} skipped"),
        ("tokens", str(figures.tokens)),
        ("model FLOPs", f"{flops} ({known(report.overview.flops_convention)})"),
    ]


def _phase_sections(phases: Phases) -> list[Section]:
    rows = [
        (
            row.name.replace("_", " "),
            percent(row.share),
            with_unit(row.step_ms, 1, "ms"),
            with_unit(row.total_s, 1, "s"),
        )
        for row in phases.rows
        if row.total_s is not None
    ]
    if rows and phases.bubble_s is not None:
        rows += [
            ("of the wait: bubble", percent(phases.bubble_share), "", with_unit(phases.bubble_s, 1, "s")),
            (
                "of the wait: imbalance",
                percent(phases.imbalance_share),
                "",
                with_unit(phases.imbalance_s, 1, "s"),
            ),
        ]
    return [
        Section(
            f"Phases of {phases.steps} iterations, without the first",
            rows,
            ("phase", "share", "a step", "all"),
        )
    ]


def _rank_sections(ranks: Ranks | None) -> list[Section]:
    if ranks is None:
        return []
    columns = zip(
        ranks.entries,
        ranks.median_work_ms,
        ranks.median_wait_ms,
        ranks.median_data_ms,
        ranks.peak_gb,
        strict=True,
    )
    busiest = sorted(columns, key=lambda column: column[1] or 0.0, reverse=True)
    rows: list[Row] = []
    for entry, work_ms, wait_ms, data_ms, peak_gb in busiest[:MAX_RANKS]:
        numbers = (
            str(entry.first_rank)
            if entry.first_rank == entry.last_rank
            else f"{entry.first_rank}-{entry.last_rank}"
        )
        times = [with_unit(dur_ms, 1, "ms") for dur_ms in (work_ms, wait_ms, data_ms)]
        rows.append((numbers, known(entry.hostname), known(entry.stage), *times, with_unit(peak_gb, 2, "GB")))
    head = ("ranks", "node", "stage", "work", "wait", "data", "peak memory")
    shown = (
        ""
        if len(rows) == len(ranks.entries)
        else f", the {len(rows)} of {len(ranks.entries)} that work longest"
    )
    silent = (
        []
        if not ranks.silent_count
        else [Section("Silent ranks", [("ranks", _listed(ranks.silent, ranks.silent_count))])]
    )
    return [Section(f"Ranks: medians of a step{shown}", rows, head), *silent]


def _straggler_sections(stragglers: Sequence[Straggler]) -> list[Section]:
    costliest = sorted(stragglers, key=lambda each: each.lost_s, reverse=True)
    rows: list[Row] = [
        (
            _listed(each.ranks, len(each.ranks)),
            each.hostname,
            f"{each.first_iteration} to {each.iteration}" + ("" if each.is_over else " and on"),
            each.phase.replace("_", " "),
            each.against,
            f"{number(each.excess_ms, 1)} of {number(each.iteration_ms, 1)} ms",
            with_unit(each.lost_s, 1, "s"),
            each.cause or UNKNOWN,
        )
        for each in costliest[:MAX_SHOWN]
    ]
    head = ("ranks", "node", "iterations", "phase", "against", "excess", "lost", "cause")
    return [Section(f"Stragglers: {len(stragglers)}", rows, head)]


def _memory(memory: Memory) -> list[Pair]:
    if memory.reserved_peak_gb is None:
        return [("counters", "not read")]
    left = memory.out_of_memory_in_steps
    return [
        ("peak", with_unit(memory.peak_gb, 2, "GB")),
        (
            "reserved",
            f"{with_unit(memory.reserved_peak_gb, 2, 'GB')} of {with_unit(memory.device_gb, 2, 'GB')}",
        ),
        ("fragmentation", percent(memory.fragmentation)),
        ("alloc retries", known(memory.alloc_retries)),
        (
            "out of memory",
            "not in sight" if left is None else f"in {left} steps at the latest, if the peak goes on growing",
        ),
    ]


def _hardware(hardware: Hardware) -> list[Pair]:
    if all(value is None for value in vars(hardware).values()):
        return [("counters", "not read")]
    capped = UNKNOWN if hardware.throttle is None else ", ".join(hardware.throttle) or "never"
    return [
        ("power", with_unit(hardware.power_w, 1, "W")),
        ("energy", f"{with_unit(hardware.energy_j, 1, 'J')} in {with_unit(hardware.energy_read_s, 1, 's')}"),
        (
            "tokens/J",
            f"{number(hardware.tokens_per_joule, 3)} ({with_unit(hardware.joules_per_token, 3, 'J')}/token)",
        ),
        ("lowest SM clock", with_unit(hardware.min_sm_clock_mhz, 0, "MHz")),
        ("temperature", with_unit(hardware.max_temperature_c, 0, "C at most")),
        ("clocks capped", capped),
        ("errors", f"{known(hardware.ecc_uncorrected)} of memory, {known(hardware.xid_readings)} XID"),
        ("PCIe", f"generation {known(hardware.pcie_generation)} x{known(hardware.pcie_width)}"),
        ("PCIe replays", known(hardware.pcie_replays)),
        ("NVLinks", f"{known(hardware.nvlinks_active)} active"),
    ]


def _monitor_sections(monitor: Monitor) -> list[Section]:
    shown = monitor.events[: 2 * MAX_SHOWN]
    rows = [
        (event.at.partition(" ")[2], f"{event.name}, iteration {event.iteration}: {event.text}")
        for event in shown
    ]
    rows += _more(sum(monitor.event_counts.values()), len(shown))
    lost = [("lost", f"{monitor.dropped_records} records")] if monitor.dropped_records else []
    return [Section("Events", [*rows, *lost])]


def _reading_sections(reading: Reading) -> list[Section]:
    rows = [(f"line {line.number}", line.reason) for line in reading.first_skipped]
    return [
        Section(
            f"{reading.skipped} lines of {reading.path} are no records",
            rows + _more(reading.skipped, len(rows)),
        )
    ]


def _more(count: int, shown: int) -> list[Pair]:
    return [("", f"and {count - shown} more")] if count > shown else []


def _listed(numbers: Iterable[int], count: int) -> str:
    shown = list(numbers)[:MAX_SHOWN]
    return ", ".join(map(str, shown)) + (f" and {count - len(shown)} more" if count > len(shown) else "")
