"""A span of iterations as text, known or not; bars to one scale."""

from __future__ import annotations

from flagscale_perf.analysis.blocks import bars_to_scale, span


def test_a_span_is_known_or_not() -> None:
    assert (span(7, 7), span(7, 9), span(None, 9)) == ("7", "7 to 9", None)


def test_bars_to_one_scale_have_their_own_shares() -> None:
    bars = bars_to_scale("ms", {"BASE": [("send", 1.0, "blue"), ("wait", 3.0, "red")], "NEW": []})
    assert [(bar.title, bar.room, bar.in_words) for bar in bars] == [
        ("BASE", 4.0, False),
        ("NEW", 4.0, False),
    ]
    assert [(part.label, part.share) for part in bars[0].parts] == [("send", 0.25), ("wait", 0.75)]
