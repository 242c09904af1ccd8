"""A chart's content, the same on the page and in the figure: lines, bars, and where axes begin and end."""

from __future__ import annotations

from typing import NamedTuple

from flagscale_perf.analysis.blocks import Line, Panel, Waterfall

# A style of a line that is a mark a point -> its symbol on the page and in the figure.
MARKS = {
    "dot": ("circle", "o"),
    "cross": ("x-thin-open", "x"),
    "diamond": ("diamond-open", "D"),
    "triangle": ("triangle-down", "v"),
}

_ROOM = 0.06  # of the height, above and below the values
_FLAT = 0.05  # of a value that never changes


def title_of(panel: Panel, is_log: bool = False) -> str:
    """The title with its unit (shares have theirs at the axis), and whether the axis begins above 0."""
    title = panel.title if panel.unit in ("", "share") else f"{panel.title}, {panel.unit}"
    bounds = None if is_log else value_range(panel)
    return f"{title} (axis not from 0)" if bounds is not None and bounds[0] > 0 else title


def lines_of(panel: Panel) -> list[Line]:
    """Its lines, without areas that are 0 everywhere."""
    return [line for line in panel.lines if line.style != "area" or any(line.y)]


class Bars(NamedTuple):
    """The parts of a waterfall that have one label.

    Attributes:
        label, colour: of all of them.
        starts, lengths: where each lane's part begins, and how long it is: 0 for a lane without one.
    """

    label: str
    colour: str
    starts: list[float]
    lengths: list[float]


def bars_of(fall: Waterfall) -> list[Bars]:
    """The parts by label, in the order in which the lanes first have them."""
    made: dict[str, Bars] = {}
    for place, lane in enumerate(fall.lanes):
        start = lane.start
        for part in lane.parts:
            if part.value:
                unused = Bars(
                    part.label, part.colour, [each.start for each in fall.lanes], [0.0] * len(fall.lanes)
                )
                bars = made.setdefault(part.label, unused)
                bars.starts[place], bars.lengths[place] = start, part.value
                start += part.value
    return list(made.values())


def value_range(panel: Panel) -> tuple[float, float] | None:
    """The lowest and highest value of the axis; None without values.

    It begins at 0 where the panel asks for it, where areas are stacked, and where the lowest value is below
    half of the highest. Otherwise the values fill the height.
    """
    values = [value for line in panel.lines for value in line.y if value is not None]
    areas = [line.y for line in panel.lines if line.style == "area"]
    values += [sum(value or 0.0 for value in stack) for stack in zip(*areas, strict=True)]
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
