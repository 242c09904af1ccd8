"""A row of numbers as one line of text."""

from __future__ import annotations

from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], width: int) -> str:
    """At most `width` characters, the last values; the lowest is the lowest bar, unknown a space. All alike
    is a line in the middle.
    """
    shown = values[-width:] if width > 0 else ()
    known = [value for value in shown if value is not None]
    if not known:
        return " " * len(shown)
    low, high = min(known), max(known)
    return "".join(" " if value is None else _bar(value, low, high) for value in shown)


def squeezed(values: Sequence[float | None], width: int) -> list[float | None]:
    """At most `width` values: neighbours become the highest of them, so that no high one is lost."""
    per_cell = -(-len(values) // max(1, width))
    cells = (values[start : start + per_cell] for start in range(0, len(values), max(1, per_cell)))
    return [max((value for value in cell if value is not None), default=None) for cell in cells]


def _bar(value: float, low: float, high: float) -> str:
    if high == low:
        return BARS[3]
    return BARS[min(len(BARS) - 1, int((value - low) / (high - low) * len(BARS)))]
