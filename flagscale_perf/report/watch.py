"""One screen of a live run, for `rich` to show on a terminal of any width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from flagscale_perf.analysis.blocks import (
    Block,
    HeatMap,
    Note,
    Panel,
    Quantity,
    Report,
    Series,
    StackedBar,
    Stripe,
)
from flagscale_perf.report.format import bar_parts, shown
from flagscale_perf.report.language import translated
from flagscale_perf.spine.language import said, say
from flagscale_perf.spine.units import columns, percent, printable

WIDE = 100
BARS = "▁▂▃▄▅▆▇█"
LEAST_SPARKLINE = 8
_GAP = 2  # between columns
_FILLS = "█▓▒░"  # so that parts differ without colours, too
_STYLES = {
    "blue": "blue",
    "sky": "cyan",
    "green": "green",
    "orange": "magenta",
    "red": "red",
    "yellow": "yellow",
    "grey": "white",
    "faint": "bright_black",
}
_TONES = {"good": "bold green", "bad": "bold red", "warn": "yellow", "": ""}
_FAINT, _HEAD = "bright_black", "bold"


@dataclass(frozen=True)
class Frame:
    """One screen.

    Attributes:
        report: of the session; None until it has a header.
        notes: about the file and how it is read, one line each.
    """

    report: Report | None
    notes: tuple[str, ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Called by rich, with the current width."""
        width = options.max_width
        parts: list[RenderableType] = [
            Text(say("waiting for the first record of the run"), style=_TONES["warn"])
        ]
        if self.report is not None:
            report = translated(self.report)
            parts = [
                Text.assemble(
                    (printable(report.state).upper(), _TONES[report.tone]),
                    "  ",
                    (printable(shown(report.title)), _HEAD),
                )
            ]
            blocks = (block for section in report.sections for block in section.blocks)
            parts += [line for block in (*report.head, *blocks) for line in _lines(block, width)]
        yield Group(*parts, *(Text(printable(said(note)), style=_FAINT) for note in self.notes))


def _lines(block: Block, width: int) -> Iterator[RenderableType]:
    match block:
        case Note():
            yield Text(printable(shown(block.text)), style=_TONES[block.tone])
        case Series():
            yield _series(block, width)
        case StackedBar():
            yield from _bar(block, width)
        case HeatMap():
            yield from _map(block, width)


def _series(series: Series, width: int) -> Table:
    """A row for each panel: last, lowest and highest value and a sparkline; fewer on a narrow terminal."""
    rows = [_row(panel) for panel in series.panels]
    values = [panel.lines[0].y for panel in series.panels]
    titles = [say(title) for title in ("last interval", "now", "min", "max")]
    needed = [max(map(columns, column)) + _GAP for column in zip(titles, *rows, strict=True)]
    shown_of = next((count for count in (4, 2) if width - sum(needed[:count]) >= LEAST_SPARKLINE), 2)
    room = width - sum(needed[:shown_of])
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style=_FAINT)
    for number, title in enumerate(titles[:shown_of]):
        style = {1: _HEAD, 2: _FAINT, 3: _FAINT}.get(number, "")
        table.add_column(title, justify="right" if number else "left", style=style)
    if room >= LEAST_SPARKLINE:
        title = printable(series.title)
        table.add_column(title if columns(title) <= room else "", style="cyan", no_wrap=True)
    for row, line in zip(rows, values, strict=True):
        table.add_row(*row[:shown_of], *([sparkline(line, room)] if room >= LEAST_SPARKLINE else []))
    return table


def _row(panel: Panel) -> list[str]:
    values = panel.lines[0].y
    known = [value for value in values if value is not None]
    figures = (values[-1], min(known), max(known))
    return [panel.title, *(shown(Quantity(figure, panel.unit, panel.decimals)) for figure in figures)]


def _bar(bar: StackedBar, width: int) -> Iterator[Text]:
    if title := shown(bar.title):
        yield Text(printable(title))
    drawn, legend, named = Text(), [Text()], bar_parts(bar)
    for place, part in enumerate(bar.parts):
        fill, style = _fill(place, part), _STYLES[part.colour]
        drawn.append(fill * _cells(part.share, min(width, WIDE)), style=style)
        if part.label and part in named:
            entry = Text.assemble((f"{fill} ", style), f"{printable(part.label)} {percent(part.share)}  ")
            if legend[-1].cell_len + entry.cell_len > width:
                legend.append(Text())
            legend[-1].append_text(entry)
    drawn.truncate(width)
    yield drawn
    yield from (line for line in legend if line)


def _cells(share: float | None, width: int) -> int:
    """Parts of a bar of this width. A damaged file cannot make it longer."""
    if share is None or not share > 0:  # not a number is neither
        return 0
    return width if share >= 1 else round(share * width)


def _fill(place: int, part: Stripe) -> str:
    return _FILLS[-1] if part.colour == "faint" else _FILLS[place % len(_FILLS)]


def _map(heat: HeatMap, width: int) -> Iterator[Text]:
    """The last column of the first layer as a sparkline over the rows, where it fits."""
    layer = heat.layers[0]
    values = [row[-1] for row in layer.values]
    known = [value for value in values if value is not None]
    low, high = (shown(Quantity(value, layer.unit)) for value in (min(known), max(known)))
    line, ends = Text(f"{printable(layer.label)}  "), say("{0} to {1}", low, high)
    room = width - line.cell_len - columns(ends) - _GAP
    if room >= LEAST_SPARKLINE:
        line.append(sparkline(squeezed(values, room), room), style="cyan")
        line.append(" " * _GAP)
    yield line.append(ends)


def as_text(frame: Frame, width: int) -> str:
    """The frame without colours, for a file."""
    console: Any = Console(
        width=width, color_system=None, force_terminal=False, legacy_windows=False, highlight=False
    )
    with console.capture() as captured:
        console.print(frame)
    text: str = captured.get()
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The last values as at most `width` characters, from the lowest bar to the highest; unknown values are
    spaces. Equal values stand at half height.
    """
    shown = values[-width:] if width > 0 else ()
    known = [value for value in shown if value is not None]
    if not known:
        return " " * len(shown)
    low, high = min(known), max(known)
    return "".join(" " if value is None else _height(value, low, high) for value in shown)


def squeezed(values: Sequence[float | None], width: int) -> list[float | None]:
    """At most `width` values: the highest of each group of neighbours, so that no high one is lost."""
    per_cell = -(-len(values) // max(1, width))
    cells = (values[start : start + per_cell] for start in range(0, len(values), max(1, per_cell)))
    return [max((value for value in cell if value is not None), default=None) for cell in cells]


def _height(value: float, low: float, high: float) -> str:
    if high == low:
        return BARS[3]
    return BARS[min(len(BARS) - 1, int((value - low) / (high - low) * len(BARS)))]
