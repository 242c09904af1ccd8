"""Waterfalls and box plots as panels of a figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from flagscale_perf.analysis.blocks import Boxes, Waterfall
from flagscale_perf.report.palette import on_white
from flagscale_perf.spine.units import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SOFT, _GRID = "#555555", "#e5e5e5"
_LETTER = 0.0045  # of the figure's width
_KEY_INCH, _KEY_LETTER_INCH = 0.42, 0.075  # of a legend's entry, and of each letter in it
_LANE_INCH, _LEGEND_INCH, _PAD_POINTS = 0.16, 0.19, 23


class Room(NamedTuple):
    """What a panel needs of a figure, in inches.

    Attributes:
        height: of the panel itself.
        above: more than usual between title and panel.
        below: more than usual for the names below it.
    """

    height: float
    above: float = 0.0
    below: float = 0.0


def room_of(block: Waterfall | Boxes, width_inch: float, figure_inch: float, height_inch: float) -> Room:
    """The room of a panel of this width and at least this height, with the names of its rows."""
    if isinstance(block, Boxes):
        return Room(max(height_inch, _LANE_INCH * len(block.rows)))
    names = _name_share(lane.label for lane in block.lanes)
    rows = _legend_rows(_parts(block), width_inch - names * figure_inch)
    return Room(max(height_inch, _LANE_INCH * len(block.lanes)), _LEGEND_INCH * (rows - 1))


def _parts(fall: Waterfall) -> list[str]:
    """The names of the parts that are drawn, each once."""
    drawn = (printable(part.label) for lane in fall.lanes for part in lane.parts if part.value)
    return list(dict.fromkeys(drawn))


def _legend_columns(labels: Sequence[str], width_inch: float) -> int:
    entry = _KEY_INCH + _KEY_LETTER_INCH * max(map(len, labels), default=1)
    return max(1, min(8, int(width_inch / entry)))


def _legend_rows(labels: Sequence[str], width_inch: float) -> int:
    return max(1, -(-len(labels) // _legend_columns(labels, width_inch)))


def _name_share(labels: Iterable[str]) -> float:
    """Width of the row names as a share of the figure's."""
    return _LETTER * max(map(len, labels), default=0)


def waterfall(axes: Axes, fall: Waterfall) -> None:
    """A bar for each part, beginning where the one before it ends."""
    named: set[str] = set()
    for place, lane in enumerate(fall.lanes):
        left = lane.start
        for part in lane.parts:
            if part.value:
                label = "_" if part.label in named else printable(part.label)
                axes.barh(place, part.value, left=left, color=on_white(part.colour), height=0.7, label=label)
                named.add(part.label)
                left += part.value
    axes.set_xlim(0, fall.span or 1)
    names, parts = [lane.label for lane in fall.lanes], _parts(fall)
    width_inch = (axes.get_position().width - _name_share(names)) * _width_inch(axes)
    _rows(axes, fall, names, _legend_rows(parts, width_inch))
    columns = _legend_columns(parts, width_inch)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.01, 0.99),
        ncols=columns,
        frameon=False,
        fontsize=9,
        columnspacing=1.0,
        handlelength=1.3,
        handletextpad=0.4,
    )


def boxes(axes: Axes, block: Boxes) -> None:
    """Horizontal boxes, the first one at the top."""
    for place, row in enumerate(block.rows):
        stats = {
            "med": row.median,
            "q1": row.quarter,
            "q3": row.three_quarters,
            "whislo": row.low,
            "whishi": row.high,
            "fliers": [],
        }
        line = {"color": on_white(row.colour), "linewidth": 1.6}
        axes.bxp(
            [stats],
            positions=[place],
            widths=0.55,
            orientation="horizontal",
            showfliers=False,
            boxprops=line,
            medianprops=line,
            whiskerprops=line,
            capprops=line,
        )
    axes.set_xlim(left=0)
    _rows(axes, block, [row.label for row in block.rows])


def _width_inch(axes: Axes) -> float:
    figure = axes.get_figure(root=True)
    return 0.0 if figure is None else figure.get_figwidth()


def _rows(axes: Axes, block: Waterfall | Boxes, labels: list[str], legend_rows: int = 1) -> None:
    """Title, unit and the names of the rows; the title stands above the legend."""
    box, room = axes.get_position(), _name_share(labels)
    axes.set_position((box.x0 + room, box.y0, box.width - room, box.height))
    title = printable(f"{block.title}, {block.unit}")
    pad = _PAD_POINTS + 72 * _LEGEND_INCH * (legend_rows - 1)
    left = -room / (box.width - room)  # above the names, too: it may be long
    axes.set_title(title, loc="left", x=left, size=12, weight="bold", pad=pad, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color=_GRID, lw=0.8)
    axes.set_axisbelow(True)
    axes.set_yticks(range(len(labels)), [printable(label) for label in labels], size=9, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlabel(printable(block.unit), size=9, color=_SOFT)
