"""Numbers with their units as text: the one place that rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flagscale_perf.analysis.blocks import (
    Boxes,
    BoxRow,
    Cell,
    Interval,
    Part,
    Quantity,
    Series,
    StackedBar,
    Table,
    Waterfall,
)
from flagscale_perf.spine.units import UNKNOWN, duration, number, percent

_WHOLE_MS = 1000
_PREFIXES = dict(zip("YZEPTGMk", (1e24, 1e21, 1e18, 1e15, 1e12, 1e9, 1e6, 1e3), strict=True))
_SCALED = ("FLOP", "J")
_USUAL_DECIMALS = {"GB": 2, "W": 0, "MHz": 0, "C": 0, "J/token": 3}


def shown(cell: Cell) -> str:
    """The cell's text; "-" for what is not known."""
    if cell is None:
        return UNKNOWN
    return "".join(map(_part, cell)) if isinstance(cell, tuple) else _part(cell)


def _part(part: Part) -> str:
    if isinstance(part, Interval):
        return f"{quantity(part.value)} ({quantity(part.low)} to {quantity(part.high)})"
    return part if isinstance(part, str) else quantity(part)


def quantity(figure: Quantity) -> str:
    """`12.5 ms`, `34.2 %`, `7 h 05 min`, `1.92 EFLOP`, `32,768`."""
    value, unit = figure.value, figure.unit
    if value is None:
        return UNKNOWN
    sign = "+" if figure.is_change and (value > 0 or unit == "share" and value == 0) else ""
    return sign + _unsigned(value, unit, figure.decimals)


def _unsigned(value: float, unit: str, decimals: int | None) -> str:
    if unit == "share":
        return percent(value) if decimals is None else f"{100 * value:.{decimals}f} %"
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
    """With the prefix that leaves 1 to 3 digits before the point."""
    for prefix, size in _PREFIXES.items():
        if value >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def bar_rows(bar: StackedBar) -> list[tuple[str, str]]:
    """The parts of a bar as lines."""
    return [
        (
            part.label,
            UNKNOWN if part.value is None else shown(Quantity(part.value, bar.unit)) + _share(part.share),
        )
        for part in bar.parts
    ]


def _share(share: float | None) -> str:
    return "" if share is None else f" ({part_of_whole(share)})"


def part_of_whole(share: float) -> str:
    """`12.3 %`, `0.8 %`: parts beside each other, so all with one decimal as long as that says something."""
    return f"{100 * share:.1f} %" if share >= 0.001 else percent(share)


def cells(table: Table) -> list[list[str]]:
    """Head and rows that fit, as text."""
    return [[shown(cell) for cell in row] for row in (table.head, *table.rows[: table.most])]


def as_table(block: Waterfall | Boxes) -> Table:
    """A picture in figures, for formats that have none."""
    title = f"{block.title}, {block.unit}"
    if isinstance(block, Boxes):
        spread: list[Sequence[Cell]] = [
            (row.label, *(Quantity(value, "", 3) for value in _values(row))) for row in block.rows
        ]
        return Table(("", "low", "25 %", "median", "75 %", "high"), spread, 5, title)
    names = list(dict.fromkeys(part.label for lane in block.lanes for part in lane.parts if part.value))
    is_in_time = any(lane.start for lane in block.lanes)
    rows: list[Sequence[Cell]] = []
    for lane in block.lanes:
        values = {part.label: part.value for part in lane.parts}
        times = [*([lane.start] if is_in_time else []), *(values.get(name) for name in names)]
        rows.append((lane.label, *(Quantity(time, "", 3) for time in times), *lane.cells))
    head = (
        "",
        *(["at"] if is_in_time else []),
        *names,
        *[""] * max((len(lane.cells) for lane in block.lanes), default=0),
    )
    return Table(head, rows, len(head) - 1, title)


def _values(row: BoxRow) -> tuple[float, float, float, float, float]:
    return row.low, row.quarter, row.median, row.three_quarters, row.high


def left_out(table: Table) -> str:
    """How many rows do not fit; empty for none."""
    more = len(table.rows) - len(table.rows[: table.most])
    return f"and {more:,} more" if more else ""


def not_drawn(charts: Iterable[Series]) -> str:
    """What charts have nothing to show of, and why; empty where they have everything."""
    missing = [phrase for chart in charts for phrase in chart.missing]
    return f"Not drawn: {'; '.join(missing)}." if missing else ""
