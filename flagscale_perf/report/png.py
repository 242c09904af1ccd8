"""A report as one figure of several panels, for a slide, a chat or a ticket. Needs matplotlib."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from flagscale_perf.analysis.blocks import (
    Block,
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
from flagscale_perf.report.axes import MARKS, lines_of, title_of, value_range
from flagscale_perf.report.format import bar_parts, bar_rows, shown
from flagscale_perf.report.palette import ink_on, on_white
from flagscale_perf.report.png_lanes import GRID, SOFT, Room, draw, known, legend, room_of, title
from flagscale_perf.spine.language import ENGLISH, using
from flagscale_perf.spine.packages import missing
from flagscale_perf.spine.units import UNKNOWN, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH_INCH, _BAR_INCH, _FOOT_INCH, _DPI = 16, 1.7, 0.9, 100
_LINE_INCH, _HEAD_INCH, _GAP_INCH, _TOP_INCH, _BELOW_INCH = 0.2, 0.9, 0.2, 0.95, 0.3
_COLUMNS, _LEFT, _PANEL_WIDTH, _GAP, _PANEL_INCH = 2, 0.05, 0.435, 0.05, 2.15
_WHOLE_WIDTH = 2 * _PANEL_WIDTH + _GAP
_LABEL_SHARE = 0.08  # of a bar; narrower parts are named in the legend only
_MOST_KEYS, _KEYS = 6, 4  # of a bar's legend on one line, and on each of several
_SHOWN_FINDINGS = 5
_DECADES = 1e3  # of an axis that has room for marks within a decade
_THOUSANDS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_LINE_CHARACTERS, _TITLE_CHARACTERS = 175, 100

Draw = Callable[["Axes"], None]
_Panel = tuple[Draw, Room]


def render(report: Report) -> bytes:
    """A PNG, 1600 pixels wide, in English: few machines have a font that has Chinese. Raises PerfError
    without matplotlib.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise missing("matplotlib", error, "--format png", "take another format") from None
    file = io.BytesIO()
    with using(ENGLISH):
        _figure(report).savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def _figure(report: Report) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    blocks = [block for section in report.sections for block in section.blocks]
    panels = _panels(blocks)
    bars = [partial(_bar, bar=each) for each in blocks if isinstance(each, StackedBar)]
    rows_inch = sum(_row_inch(row) for row in _rows(panels))
    height = _head_inch(report) + rows_inch + _GAP_INCH + _BAR_INCH * len(bars) + _FOOT_INCH
    figure = Figure(figsize=(_WIDTH_INCH, height), dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    _head(figure, report)
    _draw(figure, panels, bars, _head_inch(report))
    missing = _missing(report)
    _text(figure, missing, height - _LINE_INCH * len(missing) - 0.1, SOFT)
    return figure


def _panels(blocks: Iterable[Block]) -> list[_Panel]:
    """The panels in the order of the report: what draws each, and the room that it needs."""
    found: list[_Panel] = []
    for block in blocks:
        if isinstance(block, Series):
            found += [
                (partial(_lines, panel=panel, series=block), Room(_PANEL_INCH)) for panel in block.panels
            ]
        elif isinstance(block, Waterfall | HeatMap):
            room = room_of(block, _PANEL_WIDTH * _WIDTH_INCH, _WIDTH_INCH, _PANEL_INCH)
            found.append((partial(draw, block=block), room))
    return found


def _head_inch(report: Report) -> float:
    return _HEAD_INCH + _LINE_INCH * len(_facts(report) + _finding_lines(report))


def _rows(panels: Sequence[_Panel]) -> list[Sequence[_Panel]]:
    return [panels[place : place + _COLUMNS] for place in range(0, len(panels), _COLUMNS)]


def _row_room(row: Sequence[_Panel]) -> Room:
    return Room(*(max(values) for values in zip(*(room for _, room in row), strict=True)))


def _row_inch(row: Sequence[_Panel]) -> float:
    return _TOP_INCH + _BELOW_INCH + sum(_row_room(row))


def _draw(figure: Figure, panels: Sequence[_Panel], bars: Sequence[Draw], head_inch: float) -> None:
    """Panels in two columns, one without a neighbour and the stacked bars over the whole width."""
    top_inch = figure.get_figheight() - head_inch
    for row in _rows(panels):
        above, width = _row_room(row).above, _PANEL_WIDTH if len(row) > 1 else _WHOLE_WIDTH
        for column, (draw_panel, room) in enumerate(row):
            bottom_inch = top_inch - _TOP_INCH - above - room.height
            draw_panel(_axes(figure, _LEFT + column * (_PANEL_WIDTH + _GAP), bottom_inch, width, room.height))
        top_inch -= _row_inch(row)
    top_inch -= _GAP_INCH
    for place, draw_bar in enumerate(bars):
        bottom_inch = top_inch - (place + 1) * _BAR_INCH + 0.7
        draw_bar(_axes(figure, _LEFT, bottom_inch, _WHOLE_WIDTH, 0.45))


def _axes(figure: Figure, left: float, bottom_inch: float, width: float, height_inch: float) -> Axes:
    height = figure.get_figheight()
    return figure.add_axes((left, bottom_inch / height, width, height_inch / height))


def _head(figure: Figure, report: Report) -> None:
    height, named = figure.get_figheight(), [shown(report.title), report.subject]
    words = textwrap.shorten(printable(": ".join(filter(None, named))), _TITLE_CHARACTERS, placeholder=" ...")
    figure.text(_LEFT, 1 - 0.3 / height, words, size=17, weight="bold", va="top", parse_math=False)
    facts = _facts(report)
    _text(figure, facts, 0.75, SOFT)
    colour = on_white("red" if report.findings and report.findings.found else "green")
    _text(figure, _finding_lines(report), 0.85 + _LINE_INCH * len(facts), colour)


def _facts(report: Report) -> list[str]:
    """Figures and facts in one line, the most telling first; then each remark."""
    known_tiles = [tile for tile in report.tiles if shown(tile.value) != UNKNOWN]
    notes = [shown(block.text) for block in report.head if isinstance(block, Note)]
    rows = [row for block in report.head if isinstance(block, Pairs) for row in block.rows]
    facts = [f"{label}: {shown(cell)}" for label, cell in rows if cell is not None]
    first = "; ".join([*(f"{tile.label} {shown(tile.value)}" for tile in known_tiles), *facts])
    return [*([first] if first else []), *notes]


def _finding_lines(report: Report) -> list[str]:
    if report.findings is None:
        return []
    found = report.findings.found
    listed = [
        f"{place}. {finding.title}  [{findings.cost(finding)}]"
        for place, finding in enumerate(found[:_SHOWN_FINDINGS], 1)
    ]
    more = [f"and {len(found) - len(listed)} more"] if len(found) > len(listed) else []
    return [*listed, *more] or [findings.capital(report.findings.none_found)]


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
        block.text
        for section in report.sections
        if section.blocks and isinstance(block := section.blocks[0], Note) and isinstance(block.text, str)
    ]
    unjudged = [] if report.findings is None else report.findings.unjudged
    doubts = [f"Not judged: {'; '.join(unjudged)}"] if unjudged else []
    lines = [*_wrapped([" ".join(reasons)])[:2], *_wrapped(doubts)[:2]]
    reading = report.reading
    if reading is not None and reading.skipped:
        why = "; ".join(f"line {line.number}: {line.reason}" for line in reading.first_skipped[:2])
        lines.append(f"lines of the run file that are no records: {reading.skipped:,}; {why}")
    return lines


def _lines(axes: Axes, panel: Panel, series: Series) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    title(axes, title_of(panel, series.is_log))
    drawn = lines_of(panel)
    if areas := [line for line in drawn if line.style == "area"]:
        axes.stackplot(
            areas[0].x,
            [known(line.y) for line in areas],
            labels=[line.label for line in areas],
            colors=[on_white(line.colour) for line in areas],
            lw=0,
        )
    for line in drawn:
        if line.style != "area":
            _line(axes, line)
    axes.set_xlabel(series.axis, size=9, color=SOFT)
    if series.is_log:
        axes.set_xscale("log")
        axes.set_yscale("log")
        for axis in (axes.xaxis, axes.yaxis):
            low, high = axis.get_view_interval()
            axis.set_minor_locator(LogLocator(subs=(2, 5)) if high < _DECADES * low else NullLocator())
            axis.set_major_formatter(_short)
            axis.set_minor_formatter(_short)
        axes.grid(axis="both", color=GRID, lw=0.8)
    else:
        _scales(axes, panel, series)
    if [line.label for line in drawn] != [panel.title]:
        legend(axes)


def _short(value: float, _: float) -> str:
    """A mark of a logarithmic axis: `0.5`, `20k`, `1G`."""
    size, letter = next((each for each in _THOUSANDS if value >= each[0]), (1.0, ""))
    return f"{value / size:g}{letter}"


def _scales(axes: Axes, panel: Panel, series: Series) -> None:
    from matplotlib.ticker import PercentFormatter

    if (ends := value_range(panel)) is not None:
        axes.set_ylim(*ends)
    axes.ticklabel_format(style="plain", useOffset=False)
    if panel.unit == "share":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))  # with as many digits as tell its marks apart
    axes.margins(x=0.01)
    if series.span is not None:
        axes.set_xlim(*series.span)


def _line(axes: Axes, line: Line) -> None:
    colour, values = on_white(line.colour), known(line.y)
    if line.style in MARKS:
        _, symbol = MARKS[line.style]
        axes.scatter(line.x, values, s=22, marker=symbol, color=colour, label=line.label, zorder=3)
    else:
        alone = "o" if len(line.x) == 1 else None  # no line ends there
        dashes = "--" if line.style == "dashed" else "-"
        axes.plot(line.x, values, color=colour, lw=1.4, ls=dashes, marker=alone, label=line.label)


def _bar(axes: Axes, bar: StackedBar) -> None:
    left, whole = 0.0, sum(part.value or 0.0 for part in bar.parts)
    room = bar.room or whole
    title(axes, f"{shown(bar.title)}: {shown(Quantity(whole, bar.unit))}")
    axes.spines[:].set_visible(False)
    axes.set_yticks([])
    texts = dict(bar_rows(bar))
    parts = [part for part in bar_parts(bar) if part.value]
    for part in parts:
        label, share = part.label, (part.value or 0.0) / room
        axes.barh(
            0, share, left=left, color=on_white(part.colour), label=f"{label} {texts[label]}", ec="white"
        )
        if share > _LABEL_SHARE:
            ink, words = ink_on(part.colour), f" {printable(label)}"
            axes.text(left, 0, words, va="center", size=10, color=ink, clip_on=True, parse_math=False)
        left += share
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    if bar.room is not None:  # drawn to the scale of another one
        axes.set_xticks([])
    if left:
        ncols = len(parts) if len(parts) <= _MOST_KEYS else _KEYS
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.5), ncols=ncols, frameon=False, fontsize=9)
