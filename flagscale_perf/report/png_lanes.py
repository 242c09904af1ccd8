"""Waterfalls and box plots as panels of a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flagscale_perf.analysis.blocks import Boxes, Waterfall
from flagscale_perf.report.palette import on_white
from flagscale_perf.spine.units import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SOFT, _GRID = "#555555", "#e5e5e5"
_LETTER = 0.0045  # of the figure's width


def waterfall(axes: Axes, fall: Waterfall) -> None:
    """A bar for each part, behind the parts before it."""
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
    _rows(axes, fall, [lane.label for lane in fall.lanes])
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.01, 0.99), ncols=8, frameon=False, fontsize=9, columnspacing=1.0,
        handlelength=1.3, handletextpad=0.4,
    )  # fmt: skip


def boxes(axes: Axes, block: Boxes) -> None:
    """Lying on their sides, the first one on top."""
    for place, row in enumerate(block.rows):
        stats = {
            "med": row.median, "q1": row.quarter, "q3": row.three_quarters,
            "whislo": row.low, "whishi": row.high, "fliers": [],
        }  # fmt: skip
        line = {"color": on_white(row.colour), "linewidth": 1.6}
        axes.bxp(
            [stats], positions=[place], widths=0.55, orientation="horizontal", showfliers=False,
            boxprops=line, medianprops=line, whiskerprops=line, capprops=line,
        )  # fmt: skip
    axes.set_xlim(left=0)
    _rows(axes, block, [row.label for row in block.rows])


def _rows(axes: Axes, block: Waterfall | Boxes, labels: list[str]) -> None:
    """Title, unit and the names of the rows, for which the panel makes room."""
    box, room = axes.get_position(), _LETTER * max(map(len, labels))
    axes.set_position((box.x0 + room, box.y0, box.width - room, box.height))
    title = printable(f"{block.title}, {block.unit}")
    axes.set_title(title, loc="left", size=12, weight="bold", pad=23, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color=_GRID, lw=0.8)
    axes.set_axisbelow(True)
    axes.set_yticks(range(len(labels)), [printable(label) for label in labels], size=9, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlabel(printable(block.unit), size=9, color=_SOFT)
