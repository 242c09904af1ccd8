"""Ledgers as tables of a report: as data, and as a block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flagscale_perf.analysis.blocks import Block, Cell, Note, Quantity, Table
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.units import ranges
from flagscale_perf.training.analysis.tables import LedgerRow, LedgerTable, SlowestRow
from flagscale_perf.training.ledger.ledger import Ledger

_LEDGER_WORDS = {
    "late": "late",
    "base": "all ranks",
    "exchange": "exchange",
    "in turns": "in turns",
    "residual": "residual",
}


def table_of(ledger: Ledger) -> LedgerTable:
    """Every row, also those that took no time."""
    return LedgerTable(
        stage=ledger.stage,
        units=ledger.units,
        steps=ledger.steps,
        left_out=ledger.left_out,
        first_iteration=ledger.first_iteration,
        iteration=ledger.iteration,
        total_ns=ledger.total_ns,
        step_ms=ledger.step_ms(ledger.total_ns),
        rows=list(_rows(ledger)),
        slowest=[
            SlowestRow(
                *(one.iteration, one.total_ns / NS_PER_MS, one.beyond_ns / NS_PER_MS),
                *(one.ranks, one.phase, one.part_ns / NS_PER_MS),
            )
            for one in ledger.slowest
        ],
    )


def _rows(ledger: Ledger) -> Iterator[LedgerRow]:
    for row in ledger.late:
        yield LedgerRow(
            *("late", row.phase, row.cost_ns, ledger.step_ms(row.cost_ns), ledger.share(row.cost_ns)),
            ranks=row.ranks,
            pattern=row.pattern,
            distance=row.distance,
            usual_ms=row.usual_ns / NS_PER_MS,
            last_in=row.last_in,
            alone_ms=ledger.step_ms(row.alone_ns),
            least_ms=ledger.step_ms(row.least_ns),
            most_ms=ledger.step_ms(row.most_ns),
            label=row.label,
        )
    for kind, phase, ns in _common(ledger):
        yield LedgerRow(kind, phase, ns, ledger.step_ms(ns), ledger.share(ns))


def _common(ledger: Ledger) -> Iterator[tuple[str, str | None, int]]:
    for kind, parts in (("base", ledger.base_ns), ("exchange", ledger.exchange_ns)):
        for phase, ns in parts.items():
            yield kind, phase, ns
    yield "in turns", None, ledger.in_turns_ns
    yield "residual", None, ledger.residual_ns


def blocks_of(found: LedgerTable, stages: int, events: Mapping[int, str]) -> list[Block]:
    """Where a mean step of all ranks goes: the rows add up to it; and the slowest steps, with the event that
    was in one.
    """
    of_stage = f" of stage {found.stage}" if stages > 1 else ""
    title = f"Where a mean step{of_stage} goes, all ranks considered: {found.steps:,} iterations"
    rows: list[Sequence[Cell]] = [
        (_LEDGER_WORDS[row.kind], row.phase and row.phase.replace("_", " "), ranges(row.ranks) or None,
         _late_words(row, found.steps), _quantity_ms(row.step_ms), Quantity(row.share, "share"))
        for row in found.rows if row.total_ns
    ]  # fmt: skip
    rows.append(("mean step", None, None, None, _quantity_ms(found.step_ms), Quantity(1.0, "share")))
    left_out = f"{found.left_out:,} steps with other collectives than these are left out."
    head = ("", "phase", "ranks", "", "mean step", "share")
    notes = [Note(left_out)] if found.left_out else []
    return [Table(head, rows, 2, title), *notes, *_slowest(found, of_stage, events)]


def _slowest(found: LedgerTable, of_stage: str, events: Mapping[int, str]) -> list[Block]:
    rows: list[Sequence[Cell]] = [
        (f"{one.iteration:,}", f"rank {ranges(one.ranks)}" if one.ranks else "all ranks",
         one.phase.replace("_", " "), events.get(one.iteration), _quantity_ms(one.step_ms),
         _quantity_ms(one.beyond_ms), _quantity_ms(one.part_ms))
        for one in found.slowest
    ]  # fmt: skip
    head = ("step", "whose", "in", "event", "took", "more than usual", "of it there")
    return [Table(head, rows, 3, f"The slowest steps{of_stage}, and what was longer in them")] if rows else []


def _late_words(row: LedgerRow, steps: int) -> Cell:
    """Of a late unit: its pattern, how sure its cost is, and whether it is certain."""
    if row.kind != "late":
        return None
    rhythm = f"{row.pattern}, last in {row.last_in} of {steps:,} steps, "
    least, most, alone = _quantity_ms(row.least_ms), _quantity_ms(row.most_ms), _quantity_ms(row.alone_ms)
    return (rhythm, least, " to ", most, "; alone ", alone, f"; {row.label}")


def _quantity_ms(value_ms: float | None) -> Quantity:
    return Quantity(value_ms, "ms", 1)
