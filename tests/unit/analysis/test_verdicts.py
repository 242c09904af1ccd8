"""Figures judged by two thresholds."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.blocks import Note, Quantity, Table
from flagscale_perf.analysis.verdicts import RULES, blocks_of, verdict_of


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(0.76, "excellent"), (0.75, "good"), (0.5, "good"), (0.49, "improve"), (None, None)],
)
def test_a_value_equal_to_a_limit_is_good(value: float | None, verdict: str | None) -> None:
    assert verdict_of("share", value, "share", (0.75, 0.5), "").verdict == verdict


def test_a_table_has_the_thresholds_beside_each_figure() -> None:
    made = [
        verdict_of("TP efficiency", 0.8, "share", (0.75, 0.5), "of two ranks"),
        verdict_of("P2P", None, "GB/s", (200.0, 100.0), "no GPU"),
    ]
    head = ("figure", "here", "that is", "excellent", "improve", "")
    rows = [
        ("TP efficiency", Quantity(0.8, "share", 1), "excellent", "above 75 %", "below 50 %", "of two ranks"),
        ("P2P", Quantity(None, "GB/s", 1), "not known", "above 200 GB/s", "below 100 GB/s", "no GPU"),
    ]
    assert blocks_of(made) == [Table(head, rows, tones=["good", ""]), Note(RULES)]
    assert blocks_of([]) == []
