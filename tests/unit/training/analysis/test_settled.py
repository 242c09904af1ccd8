"""What a report says of the settled state: rates of the settled steps, and both side by side."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis.blocks import Pairs, Quantity, Table
from flagscale_perf.report.format import shown
from flagscale_perf.training.analysis.blocks import report_of
from flagscale_perf.training.summary.settled import SettledSummary
from tests import reports


def test_rates_are_those_of_the_settled_steps_and_both_stand_side_by_side() -> None:
    settled = reports.unknown(
        SettledSummary, first_iteration=11, start_steps=9, excess_s=1.8, avg_mfu=0.5, avg_iteration_ms=1600.0
    )
    report = report_of(replace(reports.small(), settled=settled))
    assert report.tiles[0].value == Quantity(0.5, "share")
    trend = next(section for section in report.sections if section.key == "trend")
    _, rows, both = trend.blocks
    assert isinstance(rows, Pairs) and isinstance(both, Table)
    state = next(cell for label, cell in rows.rows if label == "settled")
    assert shown(state) == "from iteration 11 on; the 9 before it take 1.8 s longer than usual"
    assert (both.title, both.head) == (
        "Rates with and without the slow start",
        ("", "settled, from 11 on", "all but the first"),
    )
    texts = {row[0]: tuple(map(shown, row[1:])) for row in both.rows}
    assert texts["MFU"] == ("50.0 %", "40.4 %")
    assert texts["mean iteration"] == ("1,600 ms", "2,000 ms")


def test_a_run_that_has_not_settled_says_so() -> None:
    trend = next(section for section in report_of(reports.small()).sections if section.key == "trend")
    _, rows = trend.blocks
    assert isinstance(rows, Pairs)
    state = next(cell for label, cell in rows.rows if label == "settled")
    assert state == "not known: no steps; rates are of all iterations but the first"
