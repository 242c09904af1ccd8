"""Ledgers as tables of a report, as data; the ranks of a run side by side as blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flagscale_perf.analysis.blocks import Block, Cell, Note, Quantity, Table, span
from flagscale_perf.analysis.replays import Cause, PathTimes
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.units import number, percent, ranges, stretch
from flagscale_perf.training.analysis import series
from flagscale_perf.training.analysis.captured import ALL_WORK, LONGER, MAX_LISTED
from flagscale_perf.training.analysis.report import TrainingReport
from flagscale_perf.training.analysis.tables import (
    CapturedRanks,
    CriticalPath,
    PathRow,
    Phase,
    Ranks,
    Straggler,
    phases_of,
)
from flagscale_perf.training.ledger.division import ASSUMED
from flagscale_perf.training.ledger.ledger import BY_PATH, OFF_PATH, UNEVEN, LateRow, Ledger, Row
from flagscale_perf.training.phases import GROUP_WORDS, PHASES

_MOST, _MOST_RANKS = 10, 16
WAIT_PARTS = ("exchange", "for late ranks", "in turns", "residual")
_TERMS = (
    "late: the others wait for this rank; alone: what a step gains if only this rank is no longer late; in"
    " turns: waiting for whichever rank happens to be last; uneven batches: the same where it has more work;"
    " residual: what the ranks' own records leave open"
)
_NOT_REPLAYED = (
    "Late ranks are priced by what their stage waits, not by what the job gains: captured steps are not"
    " replayed ({})."
)


def path_of(path: PathTimes, ledgers: Sequence[Ledger]) -> CriticalPath:
    """Its rows, those with most of the path first. `ledgers`: what of a late rank's time is more work."""
    rows, slopes = [], path.slopes
    more = {
        (rank, PHASES.index(row.phase)): row.more_work[0]
        for one in ledgers
        for row in one.late
        if row.more_work is not None
        for rank in row.ranks
    }
    for (rank, phase, why), whole_ns in path.causes_ns.items():
        part = more.get((rank, phase)) if rank is not None and why is Cause.LONGER else None
        causes = {why.value: 1.0} if part is None else {"more work": part, "slower": 1 - part}
        for cause, of_it in causes.items():
            share = of_it * whole_ns / max(1, path.total_ns)
            where = rank, None if rank is None else path.stages[rank], PHASES[phase], cause
            step_ms = of_it * whole_ns / path.steps / NS_PER_MS
            rows.append(PathRow(*where, step_ms, share, slopes.get((rank, phase))))
    rows.sort(key=lambda row: -row.share)
    return CriticalPath(path.steps, path.total_ns / path.steps / NS_PER_MS, rows)


def blocks_of(found: Ledger, stages: int, events: Mapping[int, str]) -> list[Block]:
    """A mean step of all ranks, row by row, and the slowest steps. `events`: texts by iteration."""
    of_stage = f" of stage {found.stage}" if stages > 1 else ""
    title = f"Where a mean step{of_stage} goes, all ranks considered: {found.steps:,} iterations"
    rows: list[Sequence[Cell]] = [
        (
            "all ranks" if row.kind == "base" else row.kind,
            row.phase and words(row.phase),
            None if row.late is None else ranges(row.late.ranks),
            _words_of(found, row),
            in_ms(found.step_ms(row.total_ns), 1),
            Quantity(found.share(row.total_ns), "share"),
        )
        for row in found.rows
        if row.total_ns
    ]
    rows.append(
        ("mean step", None, None, None, in_ms(found.step_ms(found.total_ns), 1), Quantity(1.0, "share"))
    )
    left_out = f"{found.left_out:,} steps with other collectives or ranks than these are left out."
    head = ("", "phase", "ranks", "", "mean step", "share")
    notes = [Note(_TERMS), *([Note(left_out)] if found.left_out else [])]
    return [
        Table(head, rows, 2, title),
        *notes,
        *_by_rank(found, of_stage),
        *_slowest(found, of_stage, events),
    ]


def _by_rank(found: Ledger, of_stage: str) -> list[Block]:
    """The same step as each rank passed it."""
    by_phase = zip(*(phases_of(found, unit) for unit in found.ranks), strict=True)
    rows = [row for phases in by_phase for row in _of_phase(phases)]
    head = ("phase", *(ranges(unit.ranks) or "a usual rank" for unit in found.ranks))
    title = f"A mean step{of_stage} by rank"
    return [Table(head, rows, len(found.ranks), title, is_folded=True)] if rows else []


def _of_phase(phases: Sequence[Phase]) -> Iterator[Sequence[Cell]]:
    """`phases`: one phase of each rank. What a wait is made of is there once, where all have it."""
    name = words(phases[0].name)
    if any(phase.exchange_ms is not None for phase in phases):
        for part, *values in zip(WAIT_PARTS, *(phase.parts_ms for phase in phases), strict=True):
            if any(values):
                yield f"{name}: {part}", *(in_ms(value, 1) for value in values)
    elif any(phase.total_s for phase in phases):
        yield name, *(in_ms(phase.step_ms, 1) for phase in phases)


def _path(found: CriticalPath) -> Table:
    rows = [
        (
            "messages, collectives" if row.rank is None else f"rank {row.rank}",
            None if row.stage is None else str(row.stage),
            words(row.phase),
            row.cause,
            in_ms(row.step_ms, 1),
            Quantity(row.share, "share"),
            Quantity(row.slope, "", 2),
        )
        for row in found.rows
    ]
    head = ("", "stage", "in", "why", "of a mean step", "share", "a ms more costs, ms")
    mean = number(found.step_ms, 1)
    title = f"The critical path of {found.steps} captured steps: what makes a mean one of {mean} ms"
    return Table(head, rows, 4, title, _MOST_RANKS)


def _slowest(found: Ledger, of_stage: str, events: Mapping[int, str]) -> list[Block]:
    rows: list[Sequence[Cell]] = [
        (
            f"{one.iteration:,}",
            f"rank {ranges(one.ranks)}" if one.ranks else "all ranks",
            words(one.phase),
            events.get(one.iteration),
            in_ms(one.step_ns / NS_PER_MS, 1),
            in_ms(one.beyond_ns / NS_PER_MS, 1),
            in_ms(one.part_ns / NS_PER_MS, 1),
        )
        for one in found.slowest
    ]
    head = ("step", "whose", "in", "event", "took", "more than usual", "longer there")
    return [Table(head, rows, 3, f"The slowest steps{of_stage}, and what was longer in them")] if rows else []


def _words_of(found: Ledger, row: Row) -> Cell:
    if row.kind == UNEVEN:
        each = found.uneven
        least, most = (in_ms(found.step_ms(ns), 1) for ns in (each.least_ns, each.most_ns))
        return (
            f"the last of {found.units}, in {each.steps:,} of {found.steps:,} steps, ",
            least,
            " to ",
            most,
        )
    return None if row.late is None else _late_words(found, row.late)


def _late_words(found: Ledger, row: LateRow) -> Cell:
    rhythm = f"{row.pattern}, last in {row.last_in} of {found.steps:,} steps, "
    parts: tuple[str | Quantity, ...] = ()
    if row.more_work_ns is not None:
        more_ns = row.more_work_ns
        more, slower = (in_ms(found.step_ms(ns), 1) for ns in (more_ns, row.cost_ns - more_ns))
        assumed = " (assumed)" if row.work_speed == ASSUMED else ""
        parts = (f"; more work{assumed} ", more, ", slower ", slower)
    least, most, alone = (in_ms(found.step_ms(ns), 1) for ns in (row.least_ns, row.most_ns, row.alone_ns))
    if row.label == OFF_PATH:
        return (rhythm, "costs the job nothing: without it, ", least, " to ", most, f"; {row.label}")
    if row.label == BY_PATH:
        return (rhythm, "the job gains ", alone, " (", least, " to ", most, f") without; {row.label}", *parts)
    return (rhythm, least, " to ", most, "; alone ", alone, f"; {row.label}", *parts)


def words(name: str) -> str:
    """The name of a phase, with spaces."""
    return name.replace("_", " ")


def in_ms(value_ms: float | None, decimals: int | None = None) -> Quantity:
    """Milliseconds as a quantity."""
    return Quantity(value_ms, "ms", decimals)


def ranks_of(found: TrainingReport) -> list[Block]:
    """The ranks side by side, the ledgers, and who was slow."""
    side_by_side, captured = found.ranks, [] if found.captured is None else _captured(found.captured)
    events = {each.iteration: each.name for each in found.monitor.events}
    ledgers = [block for one in found.ledgers for block in blocks_of(one, len(found.ledgers), events)]
    if side_by_side is None or not side_by_side.stretches:
        return [*captured, *ledgers] or [Note("No ranks side by side: only rank 0 is in the file.")]
    numbers = ranges(side_by_side.silent, side_by_side.silent_count)
    silent = f"{side_by_side.silent_count:,} silent in the last stretch: {numbers}"
    return [
        series.rank_map(side_by_side, found.stragglers, found.trend.points),
        *([Note(silent, "bad")] if side_by_side.silent_count else []),
        *captured,
        *([] if found.critical_path is None else [_path(found.critical_path)]),
        *ledgers,
        _stragglers(found.stragglers),
        _memory_and_cpu(side_by_side),
    ]


def _captured(found: CapturedRanks) -> list[Block]:
    """Captured steps of all ranks; below them who is longest, and which links are slow."""
    slow: list[Sequence[Cell]] = [
        (
            str(one.rank),
            one.hostname,
            None if one.stage is None else str(one.stage),
            GROUP_WORDS.get(one.part, one.part),
            f"{one.steps} of {len(found.steps)}",
            in_ms(one.beyond_ms, 1),
            Quantity(one.beyond_ms / found.step_ms, "share"),
        )
        for one in found.slow
    ]
    links: list[Sequence[Cell]] = [
        (
            " and ".join(map(str, one.ranks)),
            " and ".join(dict.fromkeys(filter(None, one.hostnames))),
            in_ms(one.round_ms, 2),
            in_ms(one.usual_ms, 2),
            f"{one.pairs:,}",
        )
        for one in found.links
    ]
    head = ("rank", "node", "stage", "longer in", "in steps", "by", "of a step")
    link_head = ("slow link: ranks", "node", "there and back", "usually", "links of its kind")
    tables = [
        Table(head, slow, 5, "Ranks that work longer than their stage's median in captured steps"),
        Table(link_head, links, 2, "Slow links: the fastest message there and the fastest one back"),
    ]
    compared = any(each is not None for row in found.beyond_ms[ALL_WORK] for each in row)
    count = f"{MAX_LISTED} or more" if len(found.slow) == MAX_LISTED else str(len(found.slow))
    about = (
        f"Captured {stretch('step', found.steps[0], found.steps[-1])}: ranks that work more than"
        f" {percent(LONGER)} of a step longer than their stage's median: {count}. Of ranks that share a row,"
        " the map has the worst."
    )
    drawn: list[Block] = [Note(about), series.captured_map(found)] if compared else []
    notes = [*found.clocks, *([_NOT_REPLAYED.format(found.not_replayed)] if found.not_replayed else [])]
    return [*drawn, *(table for table in tables if table.rows), *map(Note, notes)]


def _stragglers(found: Sequence[Straggler]) -> Block:
    if not found:
        return Note("No rank was reported as a straggler during the run.")
    head = (
        *("ranks", "node", "device", "stage", "iterations", "phase", "against", "cause", "observed"),
        *("longer", "of a step"),
    )
    rows = [
        (
            ranges(one.ranks),
            one.hostname,
            one.device,
            str(one.stage),
            (span(one.first_iteration, one.iteration) or "") + ("" if one.is_over else " and on"),
            words(one.phase),
            one.against,
            one.cause,
            one.observed,
            in_ms(one.excess_ms),
            in_ms(one.iteration_ms),
        )
        for one in sorted(found, key=lambda each: each.excess_ms, reverse=True)
    ]
    return Table(head, rows, 3, f"Stragglers: {len(found)}", _MOST)


def _memory_and_cpu(found: Ranks) -> Table:
    columns = zip(found.entries, found.peak_gb, strict=True)
    highest = sorted(
        columns, key=lambda column: (column[1] or 0.0, column[0].cpu_wait_share or 0.0), reverse=True
    )
    rows = [
        (
            span(one.first_rank, one.last_rank),
            one.hostname,
            one.device,
            None if one.stage is None else str(one.stage),
            Quantity(peak, "GB"),
            Quantity(one.cpu_wait_share, "share"),
        )
        for one, peak in highest
    ]
    head = ("ranks", "node", "device", "stage", "peak memory", "no CPU")
    return Table(head, rows, 2, "Memory and CPU by rank, the highest peak first", _MOST_RANKS, is_folded=True)
