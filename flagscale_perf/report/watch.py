"""One screen of a run that is watched, as something `rich` can show on a terminal of any width."""

from __future__ import annotations

from collections.abc import Iterator
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
from flagscale_perf.report.format import shown
from flagscale_perf.report.sparkline import sparkline, squeezed
from flagscale_perf.spine.units import percent, printable

WIDE = 100
LEAST_SPARKLINE = 8
_GAP = 2  # between columns
_FILLS = "█▓▒░"  # so that parts differ without colours, too
_STYLES = {
    "blue": "blue", "sky": "cyan", "green": "green", "orange": "magenta", "red": "red",
    "yellow": "yellow", "grey": "white", "faint": "bright_black",
}  # fmt: skip
_TONES = {"good": "bold green", "bad": "bold red", "warn": "yellow", "": ""}
_FAINT, _HEAD = "bright_black", "bold"


@dataclass(frozen=True)
class Frame:
    """What is shown.

    Attributes:
        report: of the session; None before its header is there.
        notes: about the file and how it is read, one line each.
    """

    report: Report | None
    notes: tuple[str, ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Asked by rich, which knows the width now."""
        width = options.max_width
        parts: list[RenderableType] = [Text("waiting for the first record of the run", style=_TONES["warn"])]
        if self.report is not None:
            report = self.report
            parts = [
                Text.assemble(
                    (printable(report.state).upper(), _TONES[report.tone]),
                    "  ",
                    (printable(shown(report.title)), _HEAD),
                )
            ]
            blocks = (block for section in report.sections for block in section.blocks)
            parts += [line for block in (*report.facts, *blocks) for line in _lines(block, width)]
        yield Group(*parts, *(Text(printable(note), style=_FAINT) for note in self.notes))


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
    """A row for each panel: the last value, the lowest and the highest, and all as a sparkline; on a narrow
    terminal as many of these as fit.
    """
    rows = [_row(panel) for panel in series.panels]
    values = [panel.lines[0].y for panel in series.panels]
    titles = ["last interval", "now", "min", "max"]
    needed = [max(map(len, column)) + _GAP for column in zip(titles, *rows, strict=True)]
    columns = next((count for count in (4, 2) if width - sum(needed[:count]) >= LEAST_SPARKLINE), 2)
    room = width - sum(needed[:columns])
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style=_FAINT)
    for number, title in enumerate(titles[:columns]):
        style = {1: _HEAD, 2: _FAINT, 3: _FAINT}.get(number, "")
        table.add_column(title, justify="right" if number else "left", style=style)
    if room >= LEAST_SPARKLINE:
        title = printable(series.title)
        table.add_column(title if len(title) <= room else "", style="cyan", no_wrap=True)
    for row, line in zip(rows, values, strict=True):
        table.add_row(*row[:columns], *([sparkline(line, room)] if room >= LEAST_SPARKLINE else []))
    return table


def _row(panel: Panel) -> list[str]:
    """Label, and the figures as text."""
    values = panel.lines[0].y
    known = [value for value in values if value is not None]
    figures = (values[-1], min(known), max(known))
    return [panel.title, *(shown(Quantity(figure, panel.unit, panel.decimals)) for figure in figures)]


def _bar(bar: StackedBar, width: int) -> Iterator[Text]:
    """Its title, the bar, and its parts in percent."""
    if title := shown(bar.title):
        yield Text(printable(title))
    drawn, legend = Text(), [Text()]
    for place, part in enumerate(bar.parts):
        fill, style = _fill(place, part), _STYLES[part.colour]
        drawn.append(fill * _cells(part.share, min(width, WIDE)), style=style)
        if part.label:
            entry = Text.assemble((f"{fill} ", style), f"{printable(part.label)} {percent(part.share)}  ")
            if len(legend[-1]) + len(entry) > width:
                legend.append(Text())
            legend[-1].append_text(entry)
    drawn.truncate(width)
    yield drawn
    yield from (line for line in legend if line)


def _cells(share: float | None, width: int) -> int:
    """Of a bar so wide; whatever a damaged file makes of a share, no more than all of them."""
    if share is None or not share > 0:  # not a number is neither
        return 0
    return width if share >= 1 else round(share * width)


def _fill(place: int, part: Stripe) -> str:
    return _FILLS[-1] if part.colour == "faint" else _FILLS[place % len(_FILLS)]


def _map(heat: HeatMap, width: int) -> Iterator[Text]:
    """The last column of the first layer as a sparkline over the rows, where there is room for one."""
    layer = heat.layers[0]
    values = [row[-1] for row in layer.values]
    known = [value for value in values if value is not None]
    low, high = (shown(Quantity(value, layer.unit)) for value in (min(known), max(known)))
    line, ends = Text(f"{printable(layer.label)}  "), f"{low} to {high}"
    room = width - len(line) - len(ends) - _GAP
    if room >= LEAST_SPARKLINE:
        line.append(sparkline(squeezed(values, room), room), style="cyan")
        line.append(" " * _GAP)
    yield line.append(ends)


def as_text(frame: Frame, width: int) -> str:
    """The frame without colours, as a file gets it."""
    console: Any = Console(
        width=width, color_system=None, force_terminal=False, legacy_windows=False, highlight=False
    )
    with console.capture() as captured:
        console.print(frame)
    text: str = captured.get()
    return "".join(line.rstrip() + "\n" for line in text.splitlines())
