"""A report as one figure of several panels, for a slide, a chat or a ticket. Needs matplotlib."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from flagscale_perf.analysis.blocks import (
    Boxes,
    Cell,
    HeatMap,
    Line,
    Note,
    Pairs,
    Panel,
    Quantity,
    Report,
    Series,
    StackedBar,
    Waterfall,
)
from flagscale_perf.report import findings
from flagscale_perf.report.axes import title_of, value_range
from flagscale_perf.report.format import bar_parts, bar_rows, shown
from flagscale_perf.report.palette import HEAT_MAP, on_white
from flagscale_perf.report.png_lanes import Room, boxes, room_of, waterfall
from flagscale_perf.spine.packages import missing
from flagscale_perf.spine.units import UNKNOWN, duration, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH_INCH, _BAR_INCH, _FOOT_INCH, _DPI = 16, 1.7, 0.9, 100
_LINE_INCH, _TITLE_INCH, _GAP_INCH = 0.2, 0.45, 0.2
_PART_INCH, _MOST_LABELS, _LEVEL_LABELS = 0.9, 48, 6
_NAME_INCH, _NAME_LETTER_INCH, _NAME_LETTER = 0.15, 0.068, 0.0044  # of rows and columns of a heat map
_TOP_INCH, _BELOW_INCH, _SLOPE, _COLUMN_ROOM_INCH = 0.95, 0.3, 0.57, 0.3
_COLUMNS, _LEFT, _PANEL_WIDTH, _GAP, _PANEL_INCH = 2, 0.05, 0.435, 0.05, 2.15
_NAN = float("nan")
_LABEL_SHARE = 0.08  # of a bar; narrower parts are named in the legend only
_SHOWN_FINDINGS = 5
_SHOWN_LINES = 9  # above the findings
_LINE_CHARACTERS = 190
_SOFT, _GRID = "#555555", "#e5e5e5"
_MARKS = {"dot": "o", "cross": "x", "diamond": "D", "triangle": "v"}

Draw = Callable[["Axes"], None]
_Panel = tuple[Draw, Room]


def render(report: Report) -> bytes:
    """A PNG, 1600 pixels wide. Raises PerfError without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing("matplotlib", error, "--format png", "take another format") from None
    panels, bars = _panels(report), _bars(report)
    rows_inch = sum(_row_inch(row) for row in _rows(panels))
    height = _head_inch(report) + rows_inch + _GAP_INCH + _BAR_INCH * len(bars) + _FOOT_INCH
    figure = Figure(figsize=(_WIDTH_INCH, height), dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    _head(figure, report)
    _draw(figure, panels, bars, _head_inch(report))
    _foot(figure, report)
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def _panels(report: Report) -> list[_Panel]:
    """For each panel, in the order of the report, what draws it and the room that it needs."""
    found: list[_Panel] = []
    width_inch, usual = _PANEL_WIDTH * _WIDTH_INCH, Room(_PANEL_INCH)
    for section in report.sections:
        for block in section.blocks:
            if isinstance(block, HeatMap):
                found.append((lambda axes, heat=block: _heat_map(axes, heat), _heat_room(block)))  # type: ignore[misc]
            elif isinstance(block, Waterfall):
                room = room_of(block, width_inch, _WIDTH_INCH, _PANEL_INCH)
                found.append((lambda axes, fall=block: waterfall(axes, fall), room))  # type: ignore[misc]
            elif isinstance(block, Boxes):
                room = room_of(block, width_inch, _WIDTH_INCH, _PANEL_INCH)
                found.append((lambda axes, rows=block: boxes(axes, rows), room))  # type: ignore[misc]
            elif isinstance(block, Series):
                found += [
                    (lambda axes, panel=panel, series=block: _lines(axes, panel, series), usual)  # type: ignore[misc]
                    for panel in block.panels
                ]
    return found


def _bars(report: Report) -> list[Draw]:
    return [
        lambda axes, bar=block: _bar(axes, bar)  # type: ignore[misc]
        for section in report.sections
        for block in section.blocks
        if isinstance(block, StackedBar)
    ]


def _head_inch(report: Report) -> float:
    return _PART_INCH + _LINE_INCH * (len(_head_lines(report)) + len(_finding_lines(report)))


def _rows(panels: Sequence[_Panel]) -> list[Sequence[_Panel]]:
    return [panels[place : place + _COLUMNS] for place in range(0, len(panels), _COLUMNS)]


def _row_room(row: Sequence[_Panel]) -> Room:
    """The largest room of the panels in a row."""
    return Room(*(max(values) for values in zip(*(room for _, room in row), strict=True)))


def _row_inch(row: Sequence[_Panel]) -> float:
    return _TOP_INCH + _BELOW_INCH + sum(_row_room(row))


def _draw(figure: Figure, panels: Sequence[_Panel], bars: Sequence[Draw], head_inch: float) -> None:
    """Panels in two columns, then the stacked bars over the whole width."""
    top_inch = figure.get_figheight() - head_inch
    for row in _rows(panels):
        above = _row_room(row).above
        for column, (draw, room) in enumerate(row):
            left = _LEFT + column * (_PANEL_WIDTH + _GAP)
            bottom_inch = top_inch - _TOP_INCH - above - room.height
            draw(_axes(figure, left, bottom_inch, _PANEL_WIDTH, room.height))
        top_inch -= _row_inch(row)
    top_inch -= _GAP_INCH
    for place, draw in enumerate(bars):
        bottom_inch = top_inch - (place + 1) * _BAR_INCH + 0.7
        draw(_axes(figure, _LEFT, bottom_inch, 2 * _PANEL_WIDTH + _GAP, 0.45))


def _axes(figure: Figure, left: float, bottom_inch: float, width: float, height_inch: float) -> Axes:
    height = figure.get_figheight()
    return figure.add_axes((left, bottom_inch / height, width, height_inch / height))


def _head(figure: Figure, report: Report) -> None:
    """Title, facts, key figures and the costliest findings."""
    height, lines = figure.get_figheight(), _head_lines(report)
    title = printable(shown(report.title))
    figure.text(_LEFT, 1 - 0.3 / height, title, size=17, weight="bold", va="top", parse_math=False)
    _text(figure, lines, _TITLE_INCH + 0.3, _SOFT)
    colour = on_white("red" if report.findings and report.findings.found else "green")
    _text(figure, _finding_lines(report), _TITLE_INCH + 0.4 + _LINE_INCH * len(lines), colour)


def _head_lines(report: Report) -> list[str]:
    facts = [f"{label}: {shown(cell)}" for label, cell in _facts(report) if cell is not None]
    known = [tile for tile in report.tiles if shown(tile.value) != UNKNOWN]
    tiles = [f"{tile.label} {shown(tile.value)}" for tile in known]
    notes = [shown(block.text) for block in report.facts if isinstance(block, Note)]
    lines = [line for line in (report.subject, *_wrapped(facts)[:1], *_wrapped(tiles)[:1], *notes) if line]
    return lines[:_SHOWN_LINES]


def _finding_lines(report: Report) -> list[str]:
    if report.findings is None:
        return []
    found = report.findings.found
    listed = [
        f"{place}. {finding.title}  [{findings.cost(finding)}]"
        for place, finding in enumerate(found[:_SHOWN_FINDINGS], 1)
    ]
    more = [f"and {len(found) - len(listed)} more"] if len(found) > len(listed) else []
    return [*listed, *more] or ["No findings: nothing broke a limit"]


def _foot(figure: Figure, report: Report) -> None:
    missing = _missing(report)
    _text(figure, missing, figure.get_figheight() - _LINE_INCH * len(missing) - 0.1, _SOFT)


def _facts(report: Report) -> Iterable[tuple[str, Cell]]:
    return (row for block in report.facts if isinstance(block, Pairs) for row in block.rows)


def _wrapped(phrases: Sequence[str]) -> list[str]:
    return textwrap.wrap("; ".join(map(printable, phrases)), _LINE_CHARACTERS)


def _text(figure: Figure, lines: Sequence[str], below_inch: float, colour: str) -> None:
    """Lines of small text, at this distance below the upper edge of the figure."""
    short = (textwrap.shorten(printable(line), _LINE_CHARACTERS, placeholder=" ...") for line in lines)
    top = 1 - below_inch / figure.get_figheight()
    figure.text(
        _LEFT, top, "\n".join(short), size=10.5, va="top", color=colour, linespacing=1.4, parse_math=False
    )


def _missing(report: Report) -> list[str]:
    """Sections without data and why, what could not be judged, and what could not be read."""
    reasons = [
        shown(section.blocks[0].text)
        for section in report.sections
        if section.blocks and isinstance(section.blocks[0], Note)
    ]
    unjudged = [] if report.findings is None else report.findings.unjudged
    doubts = [f"Not judged: {'; '.join(unjudged)}"] if unjudged else []
    lines = [*_wrapped([" ".join(reasons)])[:2], *_wrapped(doubts)[:2]]
    reading = report.reading
    if reading is not None and reading.skipped:
        why = "; ".join(f"line {line.number}: {line.reason}" for line in reading.first_skipped[:2])
        lines.append(f"{reading.skipped} lines of the run file are not records: {why}")
    return lines


def _lines(axes: Axes, panel: Panel, series: Series) -> None:
    _title(axes, title_of(panel, series.is_log))
    areas = [line for line in panel.lines if line.style == "area"]
    if areas:
        _stack(axes, areas)
    for line in panel.lines:
        if line.style != "area":
            _line(axes, line)
    if series.is_log:
        _log_scales(axes, series)
        return
    shown_values = value_range(panel)
    if shown_values is not None:
        axes.set_ylim(*shown_values)
    axes.ticklabel_format(axis="y", style="plain", useOffset=False)
    if panel.unit == "share":
        axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.margins(x=0.01)
    _iterations(axes, series)
    if [line.label for line in panel.lines] != [panel.title]:
        _legend(axes)


def _log_scales(axes: Axes, series: Series) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(series.axis, size=9, color=_SOFT)
    axes.grid(axis="both", color=_GRID, lw=0.8)
    _legend(axes)


def _iterations(axes: Axes, block: Series | HeatMap) -> None:
    """The time axis that all panels share."""
    axes.ticklabel_format(axis="x", style="plain", useOffset=False)
    axes.set_xlabel(block.axis, size=9, color=_SOFT)
    if block.span is not None:
        axes.set_xlim(*block.span)


def _stack(axes: Axes, areas: Sequence[Line]) -> None:
    axes.stackplot(
        areas[0].x,
        [_known(line.y) for line in areas],
        labels=[line.label for line in areas],
        colors=[on_white(line.colour) for line in areas],
        lw=0,
    )


def _line(axes: Axes, line: Line) -> None:
    colour, values = on_white(line.colour), _known(line.y)
    if line.style in _MARKS:
        axes.scatter(
            line.x, values, s=22, marker=_MARKS[line.style], color=colour, label=line.label, zorder=3
        )
    else:
        axes.plot(
            line.x, values, color=colour, lw=1.4, ls="--" if line.style == "dashed" else "-", label=line.label
        )


def _heat_room(heat: HeatMap) -> Room:
    """Room for the names of the rows, and for the slanting names of the columns."""
    height, below = _PANEL_INCH, 0.0
    if heat.columns and len(heat.rows) <= _MOST_LABELS:
        height = max(height, _NAME_INCH * len(heat.rows))
    if len(heat.columns or ()) > _LEVEL_LABELS:
        below = _SLOPE * _NAME_LETTER_INCH * max(map(len, heat.columns or ())) - _COLUMN_ROOM_INCH
    return Room(height, below=max(0.0, below))


def _make_room_for_names(axes: Axes, names: Sequence[str]) -> None:
    """Moves the left edge of the panel so that the names of its rows fit."""
    box, room = axes.get_position(), max(0.0, _NAME_LETTER * max(map(len, names), default=0) - _LEFT * 0.8)
    axes.set_position((box.x0 + room, box.y0, box.width - room, box.height))


def _heat_map(axes: Axes, heat: HeatMap) -> None:
    """Draws the first layer only."""
    from matplotlib.ticker import MaxNLocator

    layer = heat.layers[0]
    _title(axes, f"{layer.label} of each {heat.row_name}, {layer.unit}")
    cells = [_known(row) for row in layer.values]
    image = axes.pcolormesh(
        heat.edges, [row - 0.5 for row in range(len(cells) + 1)], cells, cmap=HEAT_MAP.lower()
    )
    axes.invert_yaxis()
    axes.yaxis.set_major_formatter(lambda place, _: _row_label(heat, place))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=False)
    axes.set_ylabel(heat.row_name, size=9, color=_SOFT)
    if heat.columns:
        axes.set_xlabel(heat.axis, size=9, color=_SOFT)
        places = [place + 0.5 for place in range(len(heat.columns))]
        axes.set_xticks(places, [printable(name) for name in heat.columns], size=8, parse_math=False)
        if len(heat.columns) > _LEVEL_LABELS:
            axes.tick_params(axis="x", rotation=35)
            for text in axes.get_xticklabels():
                text.set_horizontalalignment("right")
        if len(heat.rows) <= _MOST_LABELS:
            names = [printable(name) for name in heat.rows]
            _make_room_for_names(axes, names)
            axes.set_yticks(range(len(names)), names, size=8, parse_math=False)
        axes.set_ylabel("")
    else:
        _iterations(axes, heat)
    axes.figure.colorbar(image, ax=axes, pad=0.015)
    for row, begin, end in heat.outlines:
        axes.fill_between(
            [begin, end], row - 0.5, row + 0.5, facecolor="none", edgecolor=on_white("red"), lw=1.8
        )


def _row_label(heat: HeatMap, place: float) -> str:
    return heat.rows[int(place)] if 0 <= place < len(heat.rows) else ""


def _bar(axes: Axes, bar: StackedBar) -> None:
    left, whole = 0.0, sum(part.value or 0.0 for part in bar.parts)
    room = bar.room or whole
    amount = duration(whole) if bar.unit == "s" else shown(Quantity(whole, bar.unit))
    _title(axes, f"{shown(bar.title)}: {amount}")
    axes.spines[:].set_visible(False)
    axes.set_yticks([])
    texts = dict(bar_rows(bar))
    for part in (each for each in bar_parts(bar) if each.value):
        label, share = part.label, (part.value or 0.0) / room
        axes.barh(
            0, share, left=left, color=on_white(part.colour), label=f"{label} {texts[label]}", ec="white"
        )
        if share > _LABEL_SHARE:
            axes.text(left, 0, f" {printable(label)}", va="center", size=10, clip_on=True, parse_math=False)
        left += share
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    if bar.room is not None:  # drawn to the scale of another one
        axes.set_xticks([])
    if left:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.5), ncols=7, frameon=False, fontsize=9)


def _title(axes: Axes, text: str) -> None:
    axes.set_title(printable(text), loc="left", size=12, weight="bold", pad=23, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=_GRID, lw=0.8)
    axes.set_axisbelow(True)


def _legend(axes: Axes) -> None:
    """On one line between the title and the panel."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.01, 0.99),
        ncols=8,
        frameon=False,
        fontsize=9,
        columnspacing=1.0,
        handlelength=1.3,
        handletextpad=0.4,
    )


def _known(values: Iterable[float | None]) -> Sequence[float]:
    return [_NAN if value is None else value for value in values]
