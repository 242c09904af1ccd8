"""A ledger as the table of a report: what it shows adds up."""

from __future__ import annotations

from flagscale_perf.analysis.blocks import Table
from flagscale_perf.training.analysis.ledgers import blocks_of, table_of
from flagscale_perf.training.ledger.ledger import ledger_of
from tests.schedules import FORWARD, MS, noise, recorded


def test_the_rows_add_up_to_the_mean_step() -> None:
    uneven = noise(0.01, 1)
    ledger = ledger_of(
        recorded(
            3,
            range(2, 42),
            lambda rank, step, phase: uneven(rank, step, phase) + 20 * MS * ((rank, phase) == (2, FORWARD)),
        )
    )
    assert ledger is not None
    table = table_of(ledger)
    assert sum(row.total_ns for row in table.rows) == table.total_ns
    late, *_ = table.rows
    assert (late.kind, list(late.ranks), late.phase, late.label) == ("late", [2], "forward", "measured")
    (block,) = blocks_of(table, stages=1)
    assert isinstance(block, Table)
    assert block.title == "Where a mean step goes, all ranks considered: 40 iterations"
    assert block.rows[-1][0] == "mean step"
