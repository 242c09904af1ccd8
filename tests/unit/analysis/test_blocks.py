"""Numbers of ranks and iterations as text."""

from __future__ import annotations

from flagscale_perf.analysis.blocks import ranks, span


def test_neighbours_are_put_together() -> None:
    assert ranks([0, 1, 2, 5]) == "0 to 2, 5"
    assert ranks([0, 2, 4, 6], most=2) == "0, 2 ... (4 in all)"
    assert ranks([]) == ""


def test_a_span_is_known_or_not() -> None:
    assert (span(7, 7), span(7, 9), span(None, 9)) == ("7", "7 to 9", None)
