"""Panels of a figure whose rows have names: waterfalls and heat maps."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

from flagscale_perf.analysis.blocks import HeatMap, Layer, Waterfall
from flagscale_perf.report.axes import bars_of
from flagscale_perf.report.format import in_a_cell
from flagscale_perf.report.palette import AMOUNTS, HEAT_MAP, on_white
from flagscale_perf.spine.units import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.colors import LinearSegmentedColormap

SOFT, GRID = "#555555", "#e5e5e5"
_LETTER, _MARGIN = 0.0046, 0.03  # of the figure's width: of a row's name, and what is free left of a panel
_AXIS_NAME = 0.015  # the same of the name of the rows' axis
_KEY_INCH, _KEY_LETTER_INCH = 0.42, 0.075  # of a legend's entry, and of each letter in it
_LANE_INCH, _LEGEND_INCH, _PAD_POINTS, _FEWEST_LANES = 0.16, 0.19, 23, 3
_MOST_NAMES, _LEVEL_NAMES, _SLOPE_INCH, _SLOPE_FREE_INCH = 48, 6, 0.039, 0.3  # of a heat map
_DECADE = 10
_TITLE_LETTER_INCH = 0.106  # of a bold title
_CELL_INCH = 0.5, 0.13  # from here on there is room for a figure in it


class Room(NamedTuple):
    """The room that a panel needs of a figure, in inches.

    Attributes:
        height: of the panel itself.
        above: more than usual between title and panel.
        below: more than usual for the names below it.
    """

    height: float
    above: float = 0.0
    below: float = 0.0


Rows = Waterfall | HeatMap


def room_of(block: Rows, width_inch: float, figure_inch: float, height_inch: float) -> Room:
    """The room of a panel of this width and at least this height, with the names of its rows and columns."""
    if isinstance(block, HeatMap):
        lanes, columns = min(len(block.rows), _MOST_NAMES) if block.columns else 0, block.columns
        slope = _SLOPE_INCH * max(map(len, columns)) if len(columns) > _LEVEL_NAMES else 0.0
        return Room(max(height_inch, _LANE_INCH * lanes), below=max(0.0, slope - _SLOPE_FREE_INCH))
    names = _name_share(lane.label for lane in block.lanes)
    rows = _legend_rows(_keys(block), width_inch - names * figure_inch)
    return Room(max(height_inch, _LANE_INCH * len(block.lanes)), _LEGEND_INCH * (rows - 1))


def draw(axes: Axes, block: Rows) -> None:
    """The first row is at the top."""
    match block:
        case Waterfall():
            _waterfall(axes, block)
        case HeatMap():
            _heat_map(axes, block)


def _keys(fall: Waterfall) -> list[str]:
    return [printable(bars.label) for bars in bars_of(fall)]


def _legend_columns(labels: Sequence[str], width_inch: float) -> int:
    entry = _KEY_INCH + _KEY_LETTER_INCH * max(map(len, labels), default=1)
    return max(1, min(8, int(width_inch / entry)))


def _legend_rows(labels: Sequence[str], width_inch: float) -> int:
    return max(1, -(-len(labels) // _legend_columns(labels, width_inch)))


def _name_share(labels: Iterable[str]) -> float:
    """Share of the figure's width that the names of a panel's rows take."""
    return max(0.0, _LETTER * max(map(len, labels), default=0) - _MARGIN)


def _waterfall(axes: Axes, fall: Waterfall) -> None:
    names, keys = [lane.label for lane in fall.lanes], _keys(fall)
    for bars, key in zip(bars_of(fall), keys, strict=True):
        parts = [one for one in zip(range(len(names)), bars.lengths, bars.starts, strict=True) if one[1]]
        lanes, lengths, starts = zip(*parts, strict=True)
        axes.barh(lanes, lengths, left=starts, color=on_white(bars.colour), height=0.7, label=key)
    axes.set_xlim(0, fall.span or 1)
    width_inch = _size_inch(axes)[0] * (1 - _name_share(names) / axes.get_position().width)
    _lanes(axes, fall, names, _legend_rows(keys, width_inch))
    legend(axes, _legend_columns(keys, width_inch))


def _lanes(axes: Axes, block: Waterfall, names: Sequence[str], legend_rows: int) -> None:
    pad = _PAD_POINTS + 72 * _LEGEND_INCH * (legend_rows - 1)
    title(axes, f"{block.title}, {block.unit}", "x", pad, _name_share(names))
    axes.set_yticks(range(len(names)), map(printable, names), size=9, parse_math=False)
    spare = max(0, _FEWEST_LANES - len(names)) / 2
    axes.set_ylim(len(names) - 0.5 + spare, -0.5 - spare)
    axes.set_xlabel(printable(block.unit), size=9, color=SOFT)


def _heat_map(axes: Axes, heat: HeatMap) -> None:
    """The first layer only."""
    layer, count = heat.layers[0], len(heat.rows)
    unit = "" if layer.unit == "share" else f", {layer.unit}"
    words = f"{layer.label[:1].upper()}{layer.label[1:]} of each {heat.row_name}"
    words = f"{heat.title if heat.columns else words}{unit}"
    _cells(axes, heat, layer)
    title(axes, words, room=_name_share(heat.rows) + _AXIS_NAME)
    axes.grid(visible=False)
    axes.set_xlabel(heat.axis, size=9, color=SOFT)
    axes.set_ylabel(heat.row_name, size=9, color=SOFT)
    step = max(1, math.ceil(count * _LANE_INCH / _size_inch(axes)[1]))
    names = [printable(name) for name in heat.rows[::step]]
    axes.set_yticks(range(0, count, step), names, size=8, parse_math=False)
    axes.set_ylim(count - 0.5, -0.5)
    if heat.columns:
        slope, align = (35, "right") if len(heat.columns) > _LEVEL_NAMES else (0, "center")
        names = [printable(name) for name in heat.columns]
        places = [place + 0.5 for place in range(len(names))]
        axes.set_xticks(places, names, size=8, rotation=slope, ha=align, parse_math=False)
    elif heat.span is not None:
        axes.set_xlim(*heat.span)
    for row, begin, end in heat.outlines:
        axes.fill_between(
            [begin, end], row - 0.5, row + 0.5, facecolor="none", edgecolor=on_white("red"), lw=1.8
        )


def _cells(axes: Axes, heat: HeatMap, layer: Layer) -> None:
    """They show their values where they are large enough; a bar explains the colours of others."""
    values = [value for row in layer.values for value in row if value is not None]
    low, high = min(filter(None, values), default=0.0), max(values, default=0.0)
    is_share, is_log = layer.unit == "share", low > 0 and layer.unit != "share" and not heat.columns
    if heat.columns:
        low = 0.0
    image = axes.pcolormesh(
        heat.edges,
        [row - 0.5 for row in range(len(heat.rows) + 1)],
        [known(row) for row in layer.values],
        cmap=_amounts() if heat.columns else HEAT_MAP.lower(),
        **({"norm": "log"} if is_log else {"vmin": low, "vmax": high} if heat.columns else {}),
    )
    large = _large_columns(axes, heat)
    middle = math.sqrt(low * high) if is_log else (low + high) / 2
    _write_values(axes, layer, large, middle, is_dark_large=bool(heat.columns))
    if len(large) < len(heat.edges) - 1:
        _colour_bar(axes, image, is_share, has_decades=is_log and high > _DECADE * low)


def _amounts() -> LinearSegmentedColormap:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("amounts", list(AMOUNTS))


def _write_values(
    axes: Axes, layer: Layer, columns: Mapping[int, float], middle: float, is_dark_large: bool
) -> None:
    """Writes values into the cells of these columns, by their centres; in white on dark colours."""
    for column, at in columns.items():
        for place, row in enumerate(layer.values):
            if value := row[column]:
                ink = "white" if (value > middle) == is_dark_large else "black"
                words = in_a_cell(value, layer.unit)
                axes.text(at, place, words, color=ink, size=8, ha="center", va="center")


def _large_columns(axes: Axes, heat: HeatMap) -> dict[int, float]:
    """The centre of each column whose cells have room for a figure, by its number."""
    width, height = _size_inch(axes)
    if height / len(heat.rows) < _CELL_INCH[1]:
        return {}
    inch = width / ((heat.edges[-1] - heat.edges[0]) or math.inf)
    return {
        column: (begin + end) / 2
        for column, (begin, end) in enumerate(pairwise(heat.edges))
        if inch * (end - begin) >= _CELL_INCH[0]
    }


def _colour_bar(axes: Axes, image: QuadMesh, is_share: bool, has_decades: bool) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator

    form = "{x:.0%}" if is_share else "{x:g}"
    bar = axes.figure.colorbar(image, ax=axes, pad=0.015, fraction=0.08, format=form)
    bar.set_ticks(LogLocator(subs=(1, 2, 5)) if has_decades else MaxNLocator(6))
    bar.minorticks_off()


def _size_inch(axes: Axes) -> tuple[float, float]:
    box = axes.get_window_extent()
    return box.width / axes.figure.dpi, box.height / axes.figure.dpi


def title(
    axes: Axes, words: str, lines: Literal["x", "y"] = "y", pad: float = _PAD_POINTS, room: float = 0.0
) -> None:
    """Above the panel and its legend, on two lines where one would run into the panel beside it. The panel
    gives up `room`, a share of the figure's width, at its left; `lines` is the axis whose values have grid
    lines.
    """
    most = int(_size_inch(axes)[0] / _TITLE_LETTER_INCH)
    box = axes.get_position()
    width = box.width - room
    axes.set_position((box.x0 + room, box.y0, width, box.height))
    shown = textwrap.fill(printable(words), most)
    axes.set_title(shown, loc="left", x=-room / width, size=12, weight="bold", pad=pad, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=lines, color=GRID, lw=0.8)
    axes.set_axisbelow(True)


def legend(axes: Axes, columns: int = 8) -> None:
    """Between the title and the panel."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        borderaxespad=0.2,
        ncols=columns,
        frameon=False,
        fontsize=8,
        columnspacing=0.8,
        handlelength=1.1,
        handletextpad=0.4,
    )


def known(values: Iterable[float | None]) -> Sequence[float]:
    """The values with NaN, which is not drawn, for unknown ones."""
    return [math.nan if value is None else value for value in values]
