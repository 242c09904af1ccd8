"""Where the axes of a chart begin and end, the same on the page and in the figure."""

from __future__ import annotations

from collections.abc import Iterable

from flagscale_perf.analysis.blocks import Line, Panel

_ROOM = 0.06  # of the height, above and below the values
_FLAT = 0.05  # of a value that never changes


def title_of(panel: Panel, is_log: bool = False) -> str:
    """The panel's title with its unit; says where the axis does not begin at 0. Shares have theirs at the
    axis.
    """
    title = panel.title if panel.unit in ("", "share") else f"{panel.title}, {panel.unit}"
    bounds = None if is_log or any(line.group for line in panel.lines) else value_range(panel)
    return f"{title} (axis not from 0)" if bounds is not None and bounds[0] > 0 else title


def lines_of(panel: Panel) -> list[Line]:
    """Its lines, without areas that are 0 everywhere."""
    return [line for line in panel.lines if line.style != "area" or any(line.y)]


def value_range(panel: Panel) -> tuple[float, float] | None:
    """The lowest and highest value of the axis; None without values.

    It begins at 0 where the panel asks for it, where areas are stacked, and where the lowest value is below
    half of the highest. Otherwise the values fill the height.
    """
    values = [value for line in panel.lines for value in line.y if value is not None]
    values += _tops(line for line in panel.lines if line.style == "area")
    if not values:
        return None
    low, high = min(values), max(values)
    if is_from_zero(panel, low, high):
        return 0.0, high * (1 + _ROOM) or 1.0
    room = (high - low) * _ROOM or abs(high) * _FLAT
    return low - room, high + room


def is_from_zero(panel: Panel, low: float, high: float) -> bool:
    """Whether the axis begins at 0; never where a value is below."""
    is_stacked = any(line.style == "area" for line in panel.lines)
    return low >= 0 and (panel.begins_at_zero or is_stacked or low <= high / 2)


def _tops(areas: Iterable[Line]) -> list[float]:
    """The upper edges of stacked areas."""
    return [sum(value or 0.0 for value in column) for column in zip(*(line.y for line in areas), strict=True)]
