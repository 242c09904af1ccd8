"""Collectives as pictures and tables."""

from __future__ import annotations

from flagscale_perf.analysis.blocks import Table, Waterfall
from flagscale_perf.profile.analysis.collectives_shown import blocks
from flagscale_perf.profile.analysis.report import ProfileReport, report_of
from flagscale_perf.profile.analysis.source import Profile
from flagscale_perf.report.format import cells


def test_waiting_is_told_from_the_transfer(found: ProfileReport) -> None:
    waits, speeds, table, lates = blocks(found)
    assert isinstance(waits, Waterfall)
    assert isinstance(speeds, Waterfall)
    assert isinstance(table, Table)
    assert isinstance(lates, Table)
    assert [[part.value for part in lane.parts] for lane in waits.lanes] == [[3, 10, 0], [0, 10, 0]]
    assert [(lane.label, lane.parts[0].value) for lane in speeds.lanes] == [("TP all_reduce", 0.2)]
    assert cells(table)[1][:8] == [
        "rank 0", "TP", "gloo:all_reduce", "4", "26.000", "6.000", "20.000", "0.000",
    ]  # fmt: skip
    assert cells(lates)[1] == ["rank 1", "model.layers.0.self_attn, forward", "2 of 4", "6.000", "6.000"]


def test_nothing_without_a_collective(nothing: Profile) -> None:
    assert blocks(report_of(nothing)) == []
