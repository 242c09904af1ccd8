"""A span of iterations as text, known or not."""

from __future__ import annotations

from flagscale_perf.analysis.blocks import span


def test_a_span_is_known_or_not() -> None:
    assert (span(7, 7), span(7, 9), span(None, 9)) == ("7", "7 to 9", None)
