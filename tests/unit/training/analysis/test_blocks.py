"""The report of a training: which blocks it has."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis.blocks import HeatMap, Note, Pairs, Quantity, Series, StackedBar, Table
from flagscale_perf.report.format import shown
from flagscale_perf.training.analysis.blocks import report_of
from flagscale_perf.training.summary.settled import SettledSummary
from tests import reports


def test_a_small_report_in_the_order_of_reading() -> None:
    report = report_of(reports.small())
    assert (report.title, report.subject) == ("Run 20240129_103000", "llama on 8 x NVIDIA H200")
    assert (report.state, report.tone) == ("completed", "good")
    assert [section.key for section in report.sections] == [
        *("goodput", "trend", "phases", "ranks", "monitor", "reading", "run"),
    ]
    kinds = {section.key: [type(block) for block in section.blocks] for section in report.sections}
    assert (kinds["goodput"][1], kinds["trend"][0], kinds["phases"]) == (StackedBar, Series, [Note])


def test_key_figures_are_raw_with_their_unit() -> None:
    mfu, *_, energy = report_of(reports.small()).tiles
    assert (mfu.label, mfu.value, mfu.note) == ("MFU", Quantity(0.4043, "share"), "causal_half")
    assert (shown(energy.value), energy.note) == ("-", "not read")


def test_a_mean_mfu_says_of_which_intervals_it_is() -> None:
    few = replace(reports.small(), figures=reports.figures(intervals=6, suspect_intervals=4))
    mfu, hfu, tflops, *_ = report_of(few).tiles
    said = "of 2 of 6 intervals, the others are above the peak"
    assert (mfu.note, hfu.note) == (said, said)
    assert isinstance(tflops.note, tuple) and tflops.note[0] == "all 6 intervals, "


def test_ranks_have_a_map_stragglers_and_their_memory() -> None:
    ranks = next(section for section in report_of(reports.hostile()).sections if section.key == "ranks")
    heat, silent, stragglers, memory = ranks.blocks
    assert isinstance(heat, HeatMap)
    assert isinstance(silent, Note) and silent.text == "1 silent in the last stretch: 1"
    assert isinstance(stragglers, Table) and stragglers.title == "Stragglers: 1"
    assert isinstance(memory, Table)
    assert [(row[0], *map(shown, row[4:])) for row in memory.rows] == [
        ("0", "40.00 GB", "-"),
        ("1", "-", "-"),
    ]


def test_from_when_on_speed_is_judged_where_there_are_too_few_steps() -> None:
    for few, said in {0: "no steps", 1: "1 step", 19: "19 steps"}.items():
        found = report_of(replace(reports.small(), findings=[], few_steps=few)).findings
        assert found is not None
        assert found.why_none == f"nothing to judge: {said} after the start-up; speed is judged from 20 on"


def test_nothing_known_is_said_in_a_line_each() -> None:
    report = report_of(reports.bare())
    first = {section.key: section.blocks[0] for section in report.sections}
    notes = [key for key, block in first.items() if isinstance(block, Note)]
    assert notes == ["goodput", "trend", "phases", "ranks"]


def test_rows_have_a_head_and_a_row_for_each_point() -> None:
    head, *rows = report_of(reports.small()).rows
    assert head[:2] == ["iteration", "first_iteration"]
    assert [row[:2] for row in rows] == [[10, 1], [20, 11], [30, 21]]


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
