"""What a report says of the settled state, and that its rates are those of the settled steps."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis.blocks import Pairs, Quantity
from flagscale_perf.report.format import shown
from flagscale_perf.training.analysis.blocks import report_of
from flagscale_perf.training.summary.settled import SettledSummary
from tests import reports


def test_rates_are_those_of_the_settled_steps() -> None:
    settled = reports.unknown(
        SettledSummary, first_iteration=11, start_steps=9, excess_s=1.8, avg_mfu=0.5, avg_iteration_ms=1600.0
    )
    report = report_of(replace(reports.small(), settled=settled))
    assert report.tiles[0].value == Quantity(0.5, "share")
    trend = next(section for section in report.sections if section.key == "trend")
    _, rows = trend.blocks
    assert isinstance(rows, Pairs)
    said = {label: shown(cell) for label, cell in rows.rows if cell is not None}
    assert said["settled"] == "from iteration 11 on; the 9 before it take 1.8 s longer than usual"
    assert said["mean iteration"] == "1,600 ms"


def test_a_run_that_has_not_settled_says_so() -> None:
    trend = next(section for section in report_of(reports.small()).sections if section.key == "trend")
    _, rows = trend.blocks
    assert isinstance(rows, Pairs)
    state = next(cell for label, cell in rows.rows if label == "settled")
    assert state == "not known: no steps; rates are of all iterations but the first"
