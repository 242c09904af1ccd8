"""A report as data: what every format shows, in the order of reading.

Numbers are raw, with their unit beside them; rounding, colours and layout are the formats'. None means "not
known", never 0. Shares are parts of 1. Texts may come from anywhere: escape them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from flagscale_perf.analysis.rules import Finding
from flagscale_perf.analysis.tree import Node
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.store.run_file import Reading

REPORT_VERSION = 1


@dataclass(frozen=True)
class Quantity:
    """A number and its unit: "share", "s", "ms", "GB", "FLOP", "" ...

    Attributes:
        decimals: None rounds as is usual for the unit.
        is_change: its sign is shown, too.
    """

    value: float | None
    unit: str = ""
    decimals: int | None = None
    is_change: bool = False


def ms(value_ns: float | None, unit: str = "") -> Quantity | None:
    """A duration in milliseconds; with the unit where no head of a column has it."""
    return None if value_ns is None else Quantity(value_ns / NS_PER_MS, unit, 3)


def three(value: float | None, unit: str = "") -> Quantity | None:
    """A number of which three figures count: `2,883`, `96.5`, `0.0466`."""
    if value is None:
        return None
    decimals = 2 - math.floor(math.log10(abs(value))) if value else 0
    return Quantity(float(value), unit, min(2, max(0, decimals)))


def lasting(value_ns: float | None) -> Quantity | None:
    """A duration in the unit that it has most figures in; from two minutes on as is usual for seconds."""
    if value_ns is None:
        return None
    unit, unit_ns = "s", 1e9
    if 0 < abs(value_ns) < 999.5e6:
        unit, unit_ns = ("us", 1e3) if abs(value_ns) < 999.5e3 else ("ms", 1e6)
    value = value_ns / unit_ns
    return Quantity(value, unit) if unit == "s" and value >= 120 else three(value, unit)


def sized(value_bytes: float | None, per: str = "") -> Quantity | None:
    """Bytes, or bytes `per` second, in the power of 1024 that leaves less than 1,000 of it."""
    if value_bytes is None:
        return None
    power = 0
    while abs(value_bytes) >= 999.5 and power < 5:
        value_bytes, power = value_bytes / 1024, power + 1
    return three(value_bytes, ("B", "KiB", "MiB", "GiB", "TiB", "PiB")[power] + per)


@dataclass(frozen=True)
class Interval:
    """A change in its interval, which a page draws from -`reach` to `reach` with a mark at `limit`."""

    value: Quantity
    low: Quantity
    high: Quantity
    reach: float
    limit: float | None = None


@dataclass(frozen=True)
class FileLink:
    """A text that a page links to a file beside it or below; `path` as seen from the page."""

    text: str
    path: str


@dataclass(frozen=True)
class Sparkline:
    """Values over time as a line without scales, with what is said of it where nothing can be drawn."""

    values: Sequence[float | None]
    text: str


Part = str | Quantity | Interval | FileLink | Sparkline
Cell = Part | tuple[Part, ...] | None  # a tuple reads as one text; None is not known


@dataclass(frozen=True)
class Pairs:
    """Labels, each with its value; one that is None is left out."""

    rows: Sequence[tuple[str, Cell]]


@dataclass(frozen=True)
class Table:
    """Rows under a head.

    Attributes:
        figures: the last so many columns are numbers.
        title: where a section has several tables; else empty.
        most: rows that fit where there is no scrolling; None for all.
        is_folded: a page shows it when it is asked to.
        colours: of each row, a name of the palette; empty for none.
        tones: of each row, "good", "bad" or ""; empty for none.
        notes: of each row, what stands below it in small print; empty for none.
        groups: of each row, the group of lines that it shows and hides on a page, "" for none; empty where no
            row has one.
        chosen: groups that are shown at first.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    figures: int = 0
    title: str = ""
    most: int | None = None
    is_folded: bool = False
    colours: Sequence[str] = ()
    tones: Sequence[str] = ()
    notes: Sequence[Cell] = ()
    groups: Sequence[str] = ()
    chosen: Sequence[str] = ()


@dataclass(frozen=True)
class Line:
    """Points of a panel.

    Attributes:
        colour: a name of the palette.
        style: "line", "dashed", "area" (stacked on the areas before it), or a mark a point: "dot", "cross",
            "diamond", "triangle".
        texts: a text a point, instead of its value.
        group: lines of one group (a run's) appear and disappear together on a page where a table has a row
            for the group; empty for a line that is always there.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    colour: str
    style: str = "line"
    texts: Sequence[str] = ()
    group: str = ""


@dataclass(frozen=True)
class Panel:
    """Lines that share a unit; "share" is shown in percent. `decimals` as in `Quantity`."""

    title: str
    unit: str
    lines: Sequence[Line]
    begins_at_zero: bool = False
    decimals: int | None = None


@dataclass(frozen=True)
class Series:
    """Panels that share an axis.

    Attributes:
        panels: those that have something to show.
        axis, span: the axis' name, its first and its last value.
        is_log: both scales are logarithmic, and no other chart shares the axis.
    """

    key: str
    title: str
    panels: Sequence[Panel]
    axis: str
    span: tuple[float, float] | None
    is_log: bool = False


@dataclass(frozen=True)
class Stripe:
    """A part of a bar; `value` is None where it was not measured apart from the others."""

    label: str
    value: float | None
    share: float | None
    colour: str


@dataclass(frozen=True)
class StackedBar:
    """A whole and its parts.

    Attributes:
        room: what the full width stands for, where bars are to be compared; None for the whole.
        in_words: formats without pictures list the parts; False where a table has them, too.
    """

    title: Cell
    unit: str
    parts: Sequence[Stripe]
    room: float | None = None
    in_words: bool = True


def bars_to_scale(unit: str, parts: Mapping[str, Sequence[tuple[str, float, str]]]) -> list[StackedBar]:
    """A bar for each title, all to one scale, so that they can be compared; tables have their figures. A part
    is its label, its value and its colour.
    """
    wholes = {title: sum(value for _, value, _ in own) for title, own in parts.items()}
    room = max(wholes.values(), default=0.0)
    return [
        StackedBar(
            title,
            unit,
            [Stripe(label, value, value / (wholes[title] or 1.0), colour) for label, value, colour in own],
            room,
            in_words=False,
        )
        for title, own in parts.items()
    ]


@dataclass(frozen=True)
class Layer:
    """A layer of a heat map: a list for each row, in it a value for each column."""

    label: str
    unit: str
    values: Sequence[Sequence[float | None]]


@dataclass(frozen=True)
class HeatMap:
    """Cells over an axis, of which one layer is shown at a time.

    Attributes:
        rows: labels; `row_name` is what they number.
        edges: where the columns begin on the axis, and where the last one ends.
        outlines: row, begin and end of cells that stand out.
        columns: their names, where they are no stretches of an axis; then the edges are 0, 1, 2 ...
    """

    key: str
    title: str
    row_name: str
    rows: Sequence[str]
    axis: str
    span: tuple[float, float] | None
    edges: Sequence[float]
    layers: Sequence[Layer]
    outlines: Sequence[tuple[int, float, float]] = ()
    columns: Sequence[str] = ()


@dataclass(frozen=True)
class Lane:
    """A line of a waterfall: its parts follow one another from `start` on. `cells` stand behind it."""

    label: str
    start: float
    parts: Sequence[Stripe]
    cells: Sequence[Cell] = ()


@dataclass(frozen=True)
class Waterfall:
    """Parts one after another and side by side, over `span` from 0 on. The parts of all lanes
    with one label are one colour.
    """

    key: str
    title: str
    unit: str
    lanes: Sequence[Lane]
    span: float


@dataclass(frozen=True)
class Note:
    """A sentence or two. `tone` is "good", "bad", "warn" or ""."""

    text: Cell
    tone: str = ""


Block = Pairs | Table | Series | StackedBar | HeatMap | Waterfall | Note


@dataclass(frozen=True)
class Section:
    """Blocks under a title; `menu` is short, for navigation. Where a report must fit one screen, the
    sections `on_screen` are printed, or the first one: they say where the time goes. A page shows one that
    `is_folded` when it is asked to.
    """

    key: str
    menu: str
    title: str
    blocks: Sequence[Block]
    on_screen: bool = False
    is_folded: bool = False


@dataclass(frozen=True)
class Tile:
    """A key figure, and in small print what belongs to it."""

    label: str
    value: Cell
    note: Cell = None


@dataclass(frozen=True)
class Findings:
    """What holds the run back, the costliest first, and a phrase for each thing that could not be judged.
    `nothing`: why there was nothing to judge at all; None where there was.
    """

    found: Sequence[Finding]
    unjudged: Sequence[str]
    nothing: str | None = None

    @property
    def none_found(self) -> str:
        """What is said where there is no finding: that all is well, only where all was judged."""
        if self.nothing is not None:
            return self.why_none
        return f"{'no problem found' if self.unjudged else 'no problems'}: {self.why_none}"

    @property
    def why_none(self) -> str:
        """The reason alone."""
        if self.nothing is not None:
            return f"nothing to judge: {self.nothing}"
        if not self.unjudged:
            return "every figure is within its limit"
        return f"every judged figure is within its limit; {len(self.unjudged)} not judged"


class Content(Protocol):
    """All that a report holds, as data for programs."""

    def as_dict(self) -> Mapping[str, Any]:
        """As data ready for JSON."""


@dataclass(frozen=True)
class Report:
    """A report, as every format shows it.

    Attributes:
        title: one line.
        subject: what it is about, one line; empty where the title says it.
        state: how it ended, and whether that is `tone` "good", "bad" or "warn"; empty where it has no end.
        facts: below the title; `head` has the remarks on the file, too.
        findings: None where none are looked for.
        content: what `--format json` writes.
        rows: head and rows of raw values that `--format csv` writes; empty where it has no rows.
        reading: what could not be read; None where nothing was read.
        complaint: one line for stderr; the command then ends with 1.
        tree: where the time goes, for the report of a job; None where the instrument does not say.
    """

    title: Cell
    facts: Sequence[Pairs | Note]
    sections: Sequence[Section]
    content: Content
    subject: str = ""
    state: str = ""
    tone: str = ""
    tiles: Sequence[Tile] = ()
    findings: Findings | None = None
    rows: Iterable[Sequence[Any]] = field(default=())
    reading: Reading | None = None
    complaint: str = ""
    tree: Node | None = None

    @property
    def head(self) -> Sequence[Pairs | Note]:
        """What stands below the title: first what a reader has to know of the file."""
        remarks = [] if self.reading is None else self.reading.remarks
        return [*(Note(remark, "warn") for remark in remarks), *self.facts]


def span(first: int | None, last: int | None) -> str | None:
    """`7`, or `7 to 9`; None where one of them is not known."""
    if first is None or last is None:
        return None
    return str(first) if first == last else f"{first} to {last}"
