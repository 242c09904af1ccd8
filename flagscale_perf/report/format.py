"""Numbers with their units as text: the one place that rounds."""

from __future__ import annotations

from collections.abc import Sequence

from flagscale_perf.analysis.blocks import (
    Cell,
    FileLink,
    Interval,
    Part,
    Quantity,
    Sparkline,
    StackedBar,
    Stripe,
    Table,
    Waterfall,
)
from flagscale_perf.report.axes import bars_of
from flagscale_perf.spine.language import say
from flagscale_perf.spine.units import UNKNOWN, duration, number, percent

_WHOLE_MS = 1000
LEAST_SHARE = 1e-5  # of a bar: five minutes in a year
_PREFIXES = dict(zip("YZEPTGMk", (1e24, 1e21, 1e18, 1e15, 1e12, 1e9, 1e6, 1e3), strict=True))
_SCALED = ("FLOP", "J")
_USUAL_DECIMALS = {"GB": 2, "W": 0, "MHz": 0, "C": 0, "J/token": 3}


def shown(cell: Cell) -> str:
    """The text of a cell; "-" where it is unknown."""
    if cell is None:
        return UNKNOWN
    return "".join(map(_part, cell)) if isinstance(cell, tuple) else _part(cell)


def _part(part: Part) -> str:
    if isinstance(part, Interval):
        ends = say("{0} to {1}", quantity(part.low), quantity(part.high))
        return f"{quantity(part.value)} ({ends})"
    if isinstance(part, FileLink | Sparkline):
        return part.text
    return part if isinstance(part, str) else quantity(part)


def quantity(figure: Quantity) -> str:
    """Such as `12.5 ms`, `34.2 %`, `7 h 05 min`, `1.92 EFLOP` or `32,768`."""
    value, unit = figure.value, figure.unit
    if value is None:
        return UNKNOWN
    text = _unsigned(value, unit, figure.decimals)
    has_sign = figure.is_change and (value > 0 or unit == "share") and not text.startswith("-")
    return f"+{text}" if has_sign else text


def _unsigned(value: float, unit: str, decimals: int | None) -> str:
    if unit == "share":
        return (
            percent(value) if decimals is None else f"{round(100 * value, decimals) + 0.0:.{decimals}f} %"
        )  # never -0
    if unit == "s" and decimals is None:
        return duration(value)
    if unit in _SCALED:
        return _scaled(value, unit)
    if unit == "ms" and decimals is None:
        decimals = 0 if value >= _WHOLE_MS else 1
    return f"{_plain(value, decimals, unit)} {unit}".rstrip()


def _plain(value: float, decimals: int | None, unit: str) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    decimals = _USUAL_DECIMALS.get(unit) if decimals is None else decimals
    if decimals is None:
        return f"{value:,.4g}"
    return number(value, decimals) if abs(value) < 1 else f"{value:,.{decimals}f}"


def _scaled(value: float, unit: str) -> str:
    for prefix, size in _PREFIXES.items():
        if value >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def in_a_cell(value: float, unit: str) -> str:
    """A value as short as a cell of a heat map needs it; only a share shows its unit."""
    if unit == "share":
        return f"{value:.0%}"
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.2g}"


def bar_parts(bar: StackedBar) -> list[Stripe]:
    """The parts of a bar, except those that took nothing, or next to nothing."""
    return [
        part
        for part in bar.parts
        if part.value != 0 and (part.share is None or abs(part.share) >= LEAST_SHARE)
    ]


def bar_rows(bar: StackedBar) -> list[tuple[str, str]]:
    """Label and text of each of its `bar_parts`."""
    return [
        (
            part.label,
            UNKNOWN if part.value is None else shown(Quantity(part.value, bar.unit)) + _share(part.share),
        )
        for part in bar_parts(bar)
    ]


def _share(share: float | None) -> str:
    return "" if share is None else f" ({part_of_whole(share)})"


def part_of_whole(share: float) -> str:
    """Such as `12.3 %` or `0.8 %`: with one decimal down to 0.1 %, as parts stand beside each other."""
    return f"{100 * share:.1f} %" if share >= 0.001 else percent(share)


def cells(table: Table) -> list[list[str]]:
    """Head and rows as text, as many as the table shows."""
    return [[shown(cell) for cell in row] for row in (table.head, *table.rows[: table.most])]


def as_table(fall: Waterfall) -> Table:
    """A waterfall as a table, for formats without pictures."""
    names = [bars.label for bars in bars_of(fall)]
    is_in_time = any(lane.start for lane in fall.lanes)
    rows: list[Sequence[Cell]] = []
    for lane in fall.lanes:
        values = {part.label: part.value for part in lane.parts}
        times = [*([lane.start] if is_in_time else []), *(values.get(name) for name in names)]
        rows.append((lane.label, *(Quantity(time, "", 3) for time in times), *lane.cells))
    behind = max((len(lane.cells) for lane in fall.lanes), default=0)
    head = ("", *(["at"] if is_in_time else []), *names, *[""] * behind)
    return Table(head, rows, len(head) - 1, f"{fall.title}, {fall.unit}")


def left_out(table: Table) -> str:
    """Such as `and 12 more`, for rows that the table does not show; otherwise empty."""
    more = len(table.rows) - len(table.rows[: table.most])
    return f"and {more:,} more" if more else ""
