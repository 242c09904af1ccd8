"""The blocks of a report as elements of its page."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import replace

from flagscale_perf.analysis.blocks import (
    Block,
    Cell,
    FileLink,
    Findings,
    HeatMap,
    Interval,
    Note,
    Pairs,
    Part,
    Quantity,
    Series,
    Sparkline,
    StackedBar,
    Table,
    Tile,
    Waterfall,
    span,
)
from flagscale_perf.analysis.rules import Change, Evidence, Finding
from flagscale_perf.report.findings import (
    RISK,
    capital,
    causes,
    changes,
    explanations,
    figure,
    gained,
    lost,
    title,
    yaml_keys,
)
from flagscale_perf.report.format import bar_parts, part_of_whole, shown
from flagscale_perf.report.markup import Html, join, lines, tag
from flagscale_perf.spine.language import said, say
from flagscale_perf.spine.units import UNKNOWN, ranges

_UNSAFE = re.compile(rb"[^A-Za-z0-9_.~/-]")  # in an address
MOST_COLUMNS = 5  # of tiles; rows are filled evenly
HINT = "Drag in a chart to zoom all of them to the same stretch; double-click for everything."


def blocks(shown_blocks: Sequence[Block]) -> Html:
    """The elements of these blocks, in their order."""
    return lines(_block(block) for block in shown_blocks)


def _block(block: Block) -> Html:
    match block:
        case Pairs():
            return _pairs(block.rows)
        case Table():
            return _table(block)
        case Series():
            return _drawn(block.key, block.title) if block.panels else Html("")
        case StackedBar():
            return _bar(block)
        case HeatMap():
            return _map(block)
        case Waterfall():
            return _drawn(block.key, block.title)
        case Note():
            return note(shown(block.text), block.tone)


def tiles(all_of_them: Sequence[Tile]) -> Html:
    """The key figures that are known, side by side."""
    known = [tile for tile in all_of_them if shown(tile.value) != UNKNOWN]
    made = (
        tag(
            "div",
            tag("p", tile.label, class_="small"),
            tag("p", shown(tile.value), class_="value"),
            tag("p", "" if tile.note is None else shown(tile.note), class_="small"),
            class_="tile",
        )
        for tile in known
    )
    count = len(known)
    columns = count if count <= MOST_COLUMNS else math.ceil(count / math.ceil(count / MOST_COLUMNS))
    return tag("div", lines(made), class_="tiles", style=f"--columns:{columns}") if known else Html("")


def note(words: str, tone: str = "") -> Html:
    """A line of small print."""
    return tag("p", words, class_=f"note {tone}".rstrip())


def _drawn(key: str, title: str) -> Html:
    """The place of a chart, for page.js to draw in."""
    return tag("div", class_="chart", id=f"chart-{key}", role="figure", aria_label=title)


def _pairs(rows: Sequence[tuple[str, Cell]], class_: str = "facts") -> Html:
    kept = [tag("div", tag("dt", label), tag("dd", shown(cell))) for label, cell in rows if cell is not None]
    return tag("dl", lines(kept), class_=class_)


def _table(table: Table) -> Html:
    """A table that scrolls by itself where the screen is too narrow. Columns without any value are left out;
    rows beyond those that fit are shown on request.
    """
    table = _without_empty(table)
    if table.most is not None and len(table.rows) > table.most and not table.is_folded:
        first, rest = _split(table, table.most)
        more = replace(rest, title=say("{0} more", f"{len(rest.rows):,}"), is_folded=True)
        return lines([_table(first), _table(more)])
    texts = len(table.head) - table.figures
    head = (tag("th", shown(cell), class_=_kind(place, texts)) for place, cell in enumerate(table.head))
    rows = (
        tag(
            "tr",
            *(_cell(table, row, place, cell, texts) for place, cell in enumerate(cells)),
            class_=table.tones[row] if table.tones else "",
        )
        for row, cells in enumerate(table.rows)
    )
    content = tag("table", tag("thead", tag("tr", *head)), Html("\n"), tag("tbody", Html("\n"), lines(rows)))
    made = tag("div", content, class_="scroll", tabindex="0")
    if table.is_folded:
        return tag("details", tag("summary", table.title), Html("\n"), made)
    return tag("h3", table.title) + made if table.title else made


def _without_empty(table: Table) -> Table:
    kept = [
        place
        for place in range(len(table.head))
        if place < len(table.head) - table.figures or any(row[place] is not None for row in table.rows)
    ]
    return replace(
        table,
        head=[table.head[place] for place in kept],
        rows=[[row[place] for place in kept] for row in table.rows],
        figures=table.figures - len(table.head) + len(kept),
    )


def _split(table: Table, at: int) -> tuple[Table, Table]:
    """The first rows and the rest."""
    by_row = ("rows", "colours", "tones", "notes", "groups")
    return (
        replace(table, **{name: getattr(table, name)[:at] for name in by_row}),
        replace(table, **{name: getattr(table, name)[at:] for name in by_row}),
    )


def _kind(place: int, texts: int) -> str:
    return "n" if place >= texts else ""


def _cell(table: Table, row: int, place: int, cell: Cell, texts: int) -> Html:
    """A cell; in a coloured row a share has a bar behind it."""
    colour = table.colours[row] if table.colours else ""
    parts = [_inline(cell)] if place else _first_cell(table, row, shown(cell), colour)
    if isinstance(cell, Interval):
        parts.append(_interval(cell))
    if colour and isinstance(cell, Quantity) and cell.unit == "share":
        width = f"width:{max(cell.value or 0.0, 0.0):.1%};background:var(--{colour})"
        parts.append(tag("span", tag("i", style=width), class_="meter"))
    return tag("td", *parts, class_=_kind(place, texts) or "q" * isinstance(cell, Quantity))


def _first_cell(table: Table, row: int, words: str, colour: str) -> list[str]:
    """The row's colour, its name with a box where that shows and hides lines, and its note."""
    group = table.groups[row] if table.groups else ""
    note_below = table.notes[row] if table.notes else None
    return [
        _swatch(colour) if colour else "",
        _choice(group, words, group in table.chosen) if group else words,
        "" if note_below is None else tag("span", _inline(note_below), class_="small"),
    ]


def _inline(cell: Cell) -> str:
    """A cell as text, its links and lines as elements."""
    return join(map(_part, cell)) if isinstance(cell, tuple) else shown(cell) if cell is None else _part(cell)


def _part(part: Part) -> str:
    if isinstance(part, FileLink):
        href = _UNSAFE.sub(lambda found: b"%%%02X" % found[0][0], os.fsencode(part.path))
        return tag("a", part.text, href=href.decode())
    return _sparkline(part) if isinstance(part, Sparkline) else shown(part)


def _sparkline(line: Sparkline) -> Html:
    """Over 0 to 100 in width and height, from the highest value to its half, or to the lowest one: a percent
    is not drawn as large as half the speed.
    """
    known = [value for value in line.values if value is not None]
    high, last = max(known, default=0.0), max(1, len(line.values) - 1)
    room = (high - min([high / 2, *known])) or 1.0
    places = (
        f"{100 * place / last:.1f},{5 + 90 * (high - value) / room:.1f}"
        for place, value in enumerate(line.values)
        if value is not None
    )
    drawn = tag("polyline", points=" ".join(places))
    return tag("svg", drawn, class_="spark", viewBox="0 0 100 100", preserveAspectRatio="none")


def _interval(change: Interval) -> Html:
    """The interval as a bar with a dot at the change, on a line with marks at no change and the limit."""
    low, value, high = (_place(one.value, change) for one in (change.low, change.value, change.high))
    marks = [
        (_place(0.0, change), "zero"),
        *([(_place(change.limit, change), "limit")] if change.limit else []),
    ]
    return tag(
        "span",
        *(tag("i", style=f"left:{place:.1f}%", class_=name) for place, name in marks),
        tag("i", style=f"left:{low:.1f}%;width:{high - low:.1f}%", class_="held"),
        tag("i", style=f"left:{value:.1f}%", class_="dot"),
        class_="interval",
    )


def _place(share: float | None, change: Interval) -> float:
    """A share's place, in percent of the line's width; the line extends a little beyond the values."""
    place = (share or 0.0) / (1.05 * change.reach) if change.reach else 0.0
    return 50 + 50 * max(-1.0, min(1.0, place))


def _choice(group: str, words: str, is_chosen: bool) -> Html:
    """A box that shows or hides the lines of a group; page.js colours it."""
    box = tag("input", type="checkbox", data_group=group, checked="checked" if is_chosen else "")
    return tag("label", box, words, class_="pick")


def _swatch(colour: str) -> Html:
    return tag("i", class_="swatch", style=f"background:var(--{colour})")


def _bar(bar: StackedBar) -> Html:
    stripes = [
        tag(
            "i",
            style=f"flex-grow:{part.value:.6g};background:var(--{part.colour})",
            title=f"{part.label}: {shown(Quantity(part.value, bar.unit))}",
        )
        for part in bar_parts(bar)
        if part.value
    ]
    whole = sum(part.value or 0.0 for part in bar.parts)
    if bar.room is not None and bar.room > whole:
        stripes.append(tag("i", style=f"flex-grow:{bar.room - whole:.6g}"))
    legend = (
        tag(
            "div",
            tag("dt", _swatch(part.colour), part.label),
            tag(
                "dd",
                tag("b", UNKNOWN if part.share is None else part_of_whole(part.share)),
                " ",
                _amount(part.value, bar.unit),
            ),
        )
        for part in bar_parts(bar)
    )
    drawn = tag("div", *stripes, class_="bar", role="img", aria_label=shown(bar.title))
    name = tag("h3", shown(bar.title), " ", tag("span", shown(Quantity(whole, bar.unit)), class_="small"))
    legend_of_all = tag("dl", lines(legend), class_="legend")
    return lines(["" if bar.room is None else name, drawn, legend_of_all])


def _amount(value: float | None, unit: str) -> str:
    return say("not told apart") if value is None else shown(Quantity(value, unit))


def _map(heat: HeatMap) -> Html:
    """A button for each layer of a heat map, and the place of its chart."""
    buttons = (
        tag(
            "button",
            layer.label,
            type="button",
            data_trace=str(place),
            aria_pressed="false" if place else "true",
        )
        for place, layer in enumerate(heat.layers)
    )
    switch = tag(
        "div", *buttons, class_="switch", data_chart=heat.key, role="group", aria_label="What the map shows"
    )
    return lines([switch, _drawn(heat.key, heat.title)])


def findings(all_of_them: Findings) -> Html:
    """A card for each finding, with its cost in front; then what could not be judged."""
    doubts = [note(say("Not judged: {0}", phrase)) for phrase in all_of_them.unjudged]
    cards = lines(tag("li", _card(one)) for one in all_of_them.found)
    none = tag("p", capital(said(all_of_them.none_found)) + say("."))
    return lines([tag("ol", cards, class_="findings") if all_of_them.found else none, *doubts])


def _card(one: Finding) -> Html:
    where = [
        (say("iterations"), span(one.first_iteration, one.iteration)),
        (say("ranks"), said(ranges(one.ranks)) if one.ranks else None),
        (say("found by"), one.instrument or None),
    ]
    return tag(
        "article",
        tag("header", tag("h3", title(one)), _price(one)),
        Html("\n"),
        _pairs(where, "facts where") + Html("\n") if any(cell is not None for _, cell in where) else "",
        tag(
            "div",
            lines(
                [
                    _links(explanations(one)),
                    _evidence(one.evidence),
                    _changes(changes(one)),
                    _causes(causes(one)),
                ]
            ),
            class_="advice",
        ),
        class_="finding costs" if one.cost_s is not None else "finding",
        id=f"finding-{one.name}",
    )


def _price(one: Finding) -> Html:
    """Cost and gain; neither for a risk."""
    if one.cost_s is None:
        return tag("p", tag("span", said(one.risk or RISK), class_="tag"), class_="price")
    parts = [tag("span", say("costs"), " ", tag("b", lost(one)), class_="tag cost")]
    if one.gain is not None:
        parts.append(tag("span", gained(one), class_="tag gain"))
    return tag("p", join(parts, " "), class_="price")


def _links(known: Sequence[tuple[str, str]]) -> Html:
    if not known:
        return Html("")
    items = (tag("li", tag("span", said(by), class_="small"), " ", text) for by, text in known)
    return tag("div", tag("h4", say("Explained")), tag("ul", *items, class_="plain"))


def _evidence(evidence: Sequence[Evidence]) -> Html:
    items = (
        tag(
            "li",
            tag("b", figure(each.value, each)),
            f" {said(each.figure)} ",
            tag("span", say("limit {0}; {1}", figure(each.limit, each), said(each.source)), class_="small"),
        )
        for each in evidence
    )
    return tag("div", tag("h4", say("Evidence")), tag("ul", *items, class_="plain"))


def _changes(changes: Sequence[Change]) -> Html:
    if not changes:
        return Html("")
    return tag(
        "div", tag("h4", say("What to change")), tag("ul", lines(map(_change, changes)), class_="plain")
    )


def _change(one: Change) -> Html:
    keys = [tag("span", yaml_keys(one), class_="small")] if one.keys else []
    return tag("li", join((*map(_flag, one.flags), tag("span", said(one.text)), *keys), " "))


def _flag(flag: str) -> Html:
    button = tag(
        "button", say("Copy"), type="button", class_="copy", data_copy=flag, aria_label=f"Copy {flag}"
    )
    return tag("span", tag("code", flag), button, class_="flag")


def _causes(known: Sequence[str]) -> Html:
    if not known:
        return Html("")
    return tag(
        "div", tag("h4", say("Possible causes")), tag("ul", *(tag("li", said(cause)) for cause in known))
    )
