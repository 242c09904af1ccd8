"""The report of a training as blocks, which every format shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flagscale_perf.analysis.blocks import (
    Block,
    Cell,
    Findings,
    Note,
    Pairs,
    Part,
    Quantity,
    Report,
    Section,
    Table,
    Tile,
)
from flagscale_perf.analysis.extremes import STRETCHES
from flagscale_perf.analysis.offers import table_of
from flagscale_perf.analysis.predictions import Offer
from flagscale_perf.analysis.session import tone_of
from flagscale_perf.training.analysis import series
from flagscale_perf.training.analysis.facts import devices, facts, run
from flagscale_perf.training.analysis.findings.case import MIN_STEPS
from flagscale_perf.training.analysis.findings.findings import no_phases
from flagscale_perf.training.analysis.ledgers import WAIT_PARTS, in_ms, ranks_of, words
from flagscale_perf.training.analysis.report import Figures, TrainingReport, Trend
from flagscale_perf.training.analysis.tables import GoodputBar, Memory, Monitor, Phase, Phases
from flagscale_perf.training.analysis.tree import tree_of
from flagscale_perf.training.figures import TABLE
from flagscale_perf.training.hardware import HardwareSummary
from flagscale_perf.training.phases import GROUP_WORDS, GROUPS
from flagscale_perf.training.summary.settled import SettledSummary
from flagscale_perf.training.utilisation import left_out

_GROUP_OF = {phase: group for group, names in GROUPS.items() for phase in names}
_MOST_EVENTS = 20
_MANY_EVENTS, _SLOWEST = 12, 5


def report_of(found: TrainingReport) -> Report:
    """Everything, in the order of reading."""
    seen = found.overview
    return Report(
        title=f"Run {seen.session_id}",
        subject=f"{seen.model_family or 'Training'} on {devices(seen)}",
        state=seen.end_reason,
        tone=tone_of(seen.end_reason),
        facts=[Pairs(facts(seen))],
        tiles=_tiles(found),
        findings=Findings(found.findings, found.unjudged, _nothing(found)),
        sections=_sections(found),
        content=found,
        rows=[TABLE.csv_keys(), *(list(point.figures.values()) for point in found.trend.points)],
        reading=found.reading,
        tree=tree_of(found),
    )


def _nothing(found: TrainingReport) -> str | None:
    """Why there is nothing to judge, and from when on; None where enough iterations have finished."""
    seen, few = found.overview, found.few_steps
    if seen.iterations:
        if few is None:
            return None
        least = MIN_STEPS.value
        return f"{few or 'no'} step{'s' * (few != 1)} after the start-up; speed is judged from {least} on"
    at, last = seen.resume_iteration or 0, seen.train_iters or 0
    why = f" (the checkpoint is at {at} of {last})" if at >= last > 0 else ""
    return f"no iteration finished{why}"


def _what_if(offers: Sequence[Offer]) -> Section:
    return Section("what-if", "What if", "What if", table_of(offers, "step"))


def _sections(found: TrainingReport) -> list[Section]:
    start = found.settled
    which = f"from {start.first_iteration:,} on" if start.has_slow_start else "without the first"
    phases = (
        f"Phases of rank 0, {found.phases.steps:,} iterations {which}" if found.phases.steps else "Phases"
    )
    sections = [
        *([] if found.offers is None else [_what_if(found.offers)]),
        Section("goodput", "Goodput", "Goodput of this session", goodput(found.goodput)),
        Section("trend", "Trend", "Iterations", _trend(found)),
        Section("phases", "Phases", phases, _phases(found), on_screen=bool(found.phases.steps)),
        Section("ranks", "Ranks", "Ranks", ranks_of(found)),
        Section("memory", "Memory", "Memory of rank 0's device", _memory(found)),
        Section("hardware", "Hardware", "Hardware of rank 0's device", _hardware(found)),
        Section("monitor", "Events", "Monitor and events", _monitor(found.monitor)),
        Section("reading", "Run file", "Run file", _reading(found)),
        Section("run", "Facts", "Facts", run(found)),
    ]
    return [section for section in sections if section.blocks]


def _tiles(found: TrainingReport) -> list[Tile]:
    figures, held, device = found.figures, found.memory, found.hardware
    no_peak = "no peak known" if found.overview.peak_tflops is None else None
    low, high = (Quantity(value, "", 1) for value in (figures.min_tflops_per_gpu, figures.max_tflops_per_gpu))
    power: Cell = (Quantity(device.power_w, "W"), ", rank 0's device") if device.power_w else "not read"
    rates, few = found.rates, left_out(figures.intervals, figures.suspect_intervals)
    which = f"all {figures.intervals:,} intervals, " if few else "intervals "
    extremes: Cell = "not known in every interval" if low.value is None else (which, low, " to ", high)
    return [
        Tile("MFU", Quantity(rates.mfu, "share"), no_peak or few or found.overview.flops_convention),
        Tile("HFU", Quantity(rates.hfu, "share"), no_peak or few or "recomputation included"),
        Tile("TFLOPS/GPU", Quantity(rates.tflops_per_gpu, "", 1), extremes),
        Tile(
            "tokens/s",
            Quantity(rates.tokens_per_s, "", 0),
            (Quantity(rates.samples_per_s, "", 1), " samples/s"),
        ),
        Tile(
            "iteration, p50",
            in_ms(rates.p50_ms),
            ("p95 ", in_ms(rates.p95_ms), ", max ", in_ms(figures.max_ms)),
        ),
        Tile(
            "goodput (ETTR)",
            Quantity(found.goodput.ettr, "share"),
            ("of ", Quantity(found.goodput.wall_s, "s")),
        ),
        Tile(
            "peak memory",
            Quantity(held.peak_gb, "GB", 1),
            ("of ", Quantity(held.device_gb, "GB", 1)) if held.device_gb else "not read",
        ),
        Tile("energy", Quantity(device.energy_j, "J"), power),
    ]


def goodput(bar: GoodputBar) -> list[Block]:
    """The time of a session, or of all sessions, by what it went into."""
    if not any(part.dur_s for part in bar.parts):
        return [Note("No time is recorded yet.")]
    whole = Pairs([("wall time", Quantity(bar.wall_s, "s")), ("ETTR", _known(bar.ettr, "", 3))])
    return [whole, series.goodput(bar)]


def _trend(found: TrainingReport) -> list[Block]:
    drawn = series.trend(found)
    if not drawn.panels:
        return [
            Note("No trend: no interval after the warm-up is finished yet."),
            Pairs(_totals(found.figures)),
        ]
    blocks: list[Block] = [drawn, Pairs([*_speed(found), *_totals(found.figures)])]
    if found.trend.intervals > 2 * STRETCHES:
        words = f"of {found.trend.intervals:,} intervals the lowest and highest of each stretch are drawn"
        blocks.append(Note(f"A long run: {words}."))
    if found.figures.suspect_intervals:
        doubt = "in no average; check --perf-peak-tflops and the data type"
        count = f"{found.figures.suspect_intervals:,} of {found.figures.intervals:,}"
        blocks.append(Note(f"Intervals above the peak: {count}; {doubt}.", "bad"))
    return blocks


def _speed(found: TrainingReport) -> list[tuple[str, Cell]]:
    figures, trend = found.figures, found.trend
    rows: list[tuple[str, Cell]] = [
        ("mean iteration", in_ms(found.rates.iteration_ms)),
        ("first iteration", (in_ms(figures.first_iteration_ms), ", left out of the rates")),
        ("settled", _settled(found.settled)),
    ]
    if trend.slow_step_count:
        excess = Quantity(trend.slow_excess_s, "s")
        rows += [
            ("slow steps", (f"{trend.slow_step_count:,}, together ", excess, " longer than usual")),
            ("slowest", _slowest(trend)),
        ]
    return rows


def _settled(settled: SettledSummary) -> Cell:
    if settled.first_iteration is None:
        return f"not known: {settled.reason}; rates are of all iterations but the first"
    since = f"from iteration {settled.first_iteration:,} on"
    if not settled.has_slow_start:
        return since
    excess = Quantity(settled.excess_s, "s")
    return (f"{since}; the {settled.start_steps:,} before it take ", excess, " longer than usual")


def _slowest(trend: Trend) -> tuple[Part, ...]:
    longest = sorted(trend.slow_steps, key=lambda step: step.iteration_ms, reverse=True)[:_SLOWEST]
    parts: list[Part] = []
    for step in longest:
        parts += [", "] if parts else []
        parts += [f"{step.iteration} (", in_ms(step.iteration_ms), ", usually ", in_ms(step.usual_ms), ")"]
    return tuple(parts)


def _totals(figures: Figures) -> list[tuple[str, Cell]]:
    return [
        ("trained", (Quantity(figures.samples), " samples, ", Quantity(figures.tokens), " tokens")),
        ("skipped", (Quantity(figures.skipped_samples), " samples") if figures.skipped_samples else None),
        ("model FLOPs", _known(figures.model_flops, "FLOP")),
        ("hardware FLOPs", _known(figures.hardware_flops, "FLOP")),
        ("training", Quantity(figures.train_s, "s")),
        ("evaluation", Quantity(figures.eval_s, "s")),
        ("checkpoints", Quantity(figures.checkpoint_s, "s")),
    ]


def _phases(found: TrainingReport) -> list[Block]:
    phases = found.phases
    if not phases.steps:
        reason = no_phases(found)
        return [Note(f"{reason[0].upper()}{reason[1:]}.")]
    named = [row for row in phases.rows if row.total_s is not None]
    unnamed = ", ".join(words(row.name) for row in phases.rows if row.total_s is None)
    drawn = series.phases(found)
    return [
        Note(_by_group(named)),
        *([drawn] if drawn.panels else []),
        _phase_table(named),
        *([Note(f"Not timed by the host; included in the enclosing phases: {unnamed}.")] if unnamed else []),
        _waits(phases),
    ]


def _phase_table(named: Sequence[Phase]) -> Table:
    parts = WAIT_PARTS if any(row.exchange_ms is not None for row in named) else ()
    rows = [
        (
            *(words(row.name), in_ms(row.step_ms), Quantity(row.share, "share"), Quantity(row.total_s, "s")),
            *(_known(part_ms, "ms", 1) for part_ms, _ in zip(row.parts_ms, parts, strict=False)),
        )
        for row in named
    ]
    colours = [series.GROUP_COLOURS[_GROUP_OF[row.name]] for row in named]
    return Table(("phase", "mean step", "share", "total", *parts), rows, 3 + len(parts), colours=colours)


def _by_group(rows: Sequence[Phase]) -> Cell:
    shares = {
        group: sum(row.share or 0.0 for row in rows if row.name in names) for group, names in GROUPS.items()
    }
    named: list[str | Quantity] = []
    for group, share in shares.items():
        if share:
            named += [f"{', ' if named else ''}{GROUP_WORDS[group]} ", Quantity(share, "share", 1)]
    return tuple(named)


def _waits(phases: Phases) -> Block:
    if phases.bubble_s is None:
        return Note("No bubble: one pipeline stage, or a schedule whose bubble is not known.")
    return Pairs(
        [
            ("bubble, which the schedule makes inevitable", _both(phases.bubble_share, phases.bubble_s)),
            ("imbalance, the rest of the wait for stages", _both(phases.imbalance_share, phases.imbalance_s)),
            ("bubble of computing and waiting", _known(phases.bubble_share_of_pipeline, "share")),
        ]
    )


def _both(share: float | None, dur_s: float | None) -> Cell:
    return None if share is None else (Quantity(share, "share"), " (", Quantity(dur_s, "s"), ")")


def _memory(found: TrainingReport) -> list[Block]:
    drawn, held = series.memory(found), found.memory
    if not drawn.panels and held.reserved_peak_gb is None:
        return []  # the findings have the reason
    return [*([drawn] if drawn.panels else []), Pairs(_memory_rows(held))]


def _memory_rows(held: Memory) -> list[tuple[str, Cell]]:
    left = held.out_of_memory_in_steps
    forecast = (
        "not in sight" if left is None else f"in {left:,} steps at the latest, if the peak goes on growing"
    )
    return [
        ("peak", Quantity(held.peak_gb, "GB")),
        ("reserved", _known(held.reserved_peak_gb, "GB")),
        ("of the device's", _known(held.device_gb, "GB")),
        ("peak of the device", _known(held.peak_share, "share")),
        ("fragmentation", _known(held.fragmentation, "share")),
        ("alloc retries", _known(held.alloc_retries)),
        ("out of memory", forecast),
    ]


def _hardware(found: TrainingReport) -> list[Block]:
    drawn, rows = series.hardware(found), _hardware_rows(found.hardware)
    if not drawn.panels and all(cell is None for _, cell in rows):
        return []
    return [*([drawn] if drawn.panels else []), Pairs(rows)]


def _hardware_rows(read: HardwareSummary) -> list[tuple[str, Cell]]:
    energy = (Quantity(read.energy_j, "J"), " in ", Quantity(read.energy_read_s, "s"))
    lanes = f"generation {read.pcie_generation}, {read.pcie_width} lanes"
    return [
        ("power", _known(read.power_w, "W")),
        ("energy", None if read.energy_j is None else energy),
        ("tokens/J", _known(read.tokens_per_joule, "", 3)),
        ("J/token", _known(read.joules_per_token, "", 3)),
        ("MFU by formula", _known(read.mfu_by_formula, "share")),
        ("MFU by counter", _known(read.mfu_by_counter, "share")),
        ("lowest SM clock", _known(read.min_sm_clock_mhz, "MHz")),
        ("highest temperature", _known(read.max_temperature_c, "C")),
        ("clocks capped", None if read.throttle is None else ", ".join(read.throttle) or "never"),
        ("uncorrected memory errors", _known(read.ecc_uncorrected)),
        ("readings with an XID", _known(read.xid_readings)),
        ("PCIe", None if read.pcie_generation is None else lanes),
        ("PCIe replays", _known(read.pcie_replays)),
        ("NVLinks active", _known(read.nvlinks_active)),
    ]


def _monitor(found: Monitor) -> list[Block]:
    cost = found.self_cost_share
    rows: list[tuple[str, Cell]] = [
        (
            "monitor itself",
            None if cost is None else (Quantity(cost, "share"), " of the training thread's time"),
        ),
        ("records dropped", Quantity(found.dropped_records)),
        ("failures inside", Quantity(found.failure_count)),
        *((f"events: {name}", Quantity(count)) for name, count in found.event_counts.items()),
    ]
    if not found.events:
        return [Pairs(rows), Note("No events.")]
    events = [(one.at, str(one.iteration), one.name, one.text) for one in found.events]
    title, is_folded = f"{len(events)} events", len(events) > _MANY_EVENTS
    head = ("time", "iteration", "event", "what")
    return [Pairs(rows), Table(head, events, 0, title if is_folded else "", _MOST_EVENTS, is_folded)]


def _reading(found: TrainingReport) -> list[Block]:
    reading = found.reading
    records = ", ".join(f"{count:,} {kind}" for kind, count in reading.records.items())
    rows = Pairs(
        [
            ("run file", Path(reading.path).name),
            ("records", records or "none"),
            ("lines left out", f"{reading.skipped:,}"),
        ]
    )
    skipped = [(str(line.number), line.reason) for line in reading.first_skipped]
    return [rows, Table(("line", "why it is not a record"), skipped)] if skipped else [rows]


def _known(value: float | None, unit: str = "", decimals: int | None = None) -> Quantity | None:
    """None leaves its row out."""
    return None if value is None else Quantity(value, unit, decimals)
