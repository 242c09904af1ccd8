"""A report as aligned text for a terminal: what holds the run back first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from flagscale_perf.analysis.blocks import (
    Block,
    Boxes,
    Findings,
    Note,
    Pairs,
    Report,
    StackedBar,
    Table,
    Tile,
    Waterfall,
)
from flagscale_perf.report import findings
from flagscale_perf.report.format import as_table, bar_rows, cells, left_out, shown
from flagscale_perf.spine.units import UNKNOWN, aligned, printable

_LABEL_WIDTH, _DETAIL_WIDTH = 16, 15
_WIDTH, _NOTE_WIDTH = 120, 80
_BRIEF_FINDINGS = 3
NOTHING_FOUND = "nothing broke a limit"


def render(report: Report) -> str:
    """The whole text, newline at the end; no character in it can move a terminal's cursor."""
    parts = [[printable(shown(report.title)), *_blocks(report.facts)]]
    if report.findings is not None:
        parts.append(_findings(report.findings))
    if report.tiles:
        parts.append(["Key figures", *_labelled(_tiles(report.tiles))])
    parts += [
        [*([printable(section.title)] if section.title else []), *lines]
        for section in report.sections
        if (lines := list(_blocks(section.blocks)))
    ]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def brief(report: Report) -> str:
    """The costliest findings in short, the key figures that are known, and what was found in a line."""
    parts = []
    if report.findings is not None:
        parts.append(_findings(report.findings, most=_BRIEF_FINDINGS))
    tiles = [tile for tile in report.tiles if shown(tile.value) != UNKNOWN]
    if rows := _tiles(tiles):
        parts.append(["Key figures", *_labelled(rows)])
    if report.findings is not None:
        parts.append([f"found  {_found(report.findings)}"])
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _blocks(blocks: Sequence[Block]) -> Iterator[str]:
    """The lines of all blocks that are made of text."""
    for place, block in enumerate(blocks):
        match block:
            case Pairs():
                yield from _labelled([(label, shown(cell)) for label, cell in block.rows if cell is not None])
            case Table():
                yield from [""] * bool(place and block.title)
                yield from _table(block)
            case Waterfall() | Boxes():
                yield from [""] * bool(place)
                yield from _table(as_table(block))
            case StackedBar() if block.in_words:
                yield from _labelled(bar_rows(block))
            case Note():
                yield from _wrapped(printable(shown(block.text)), "  ")


def _labelled(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    width = max([_LABEL_WIDTH, *(len(label) + 2 for label, _ in rows if len(label) < 2 * _LABEL_WIDTH)])
    for label, value in rows:
        yield f"  {printable(label) + '  ':<{width}}{printable(value)}".rstrip()


def _table(table: Table) -> Iterator[str]:
    if table.title:
        yield f"  {printable(table.title)}"
    head, *rows = aligned(cells(table), len(table.head) - table.figures)
    yield f"  {head}"
    for place, row in enumerate(rows):
        yield f"  {row}"
        if table.notes and table.notes[place] is not None:
            yield from _wrapped(printable(shown(table.notes[place])), "    ", _NOTE_WIDTH)
    if more := left_out(table):
        yield f"  {more}"


def _tiles(tiles: Sequence[Tile]) -> list[tuple[str, str]]:
    notes = ("" if tile.note is None else f" ({shown(tile.note)})" for tile in tiles)
    return [(tile.label, shown(tile.value) + note) for tile, note in zip(tiles, notes, strict=True)]


def _findings(all_of_them: Findings, most: int | None = None) -> list[str]:
    """All of them in full, or `most` of them in short."""
    unjudged = list(_labelled([("not judged", phrase) for phrase in all_of_them.unjudged]))
    if not all_of_them.found:
        return ["Findings", *_labelled([("none", NOTHING_FOUND)]), *unjudged]
    lines = [f"Findings: {len(all_of_them.found)}"]
    for place, finding in enumerate(all_of_them.found[:most], 1):
        lines += [""] * (place > 1) + [f"  {place}. {printable(finding.title)}"]
        lines += _details(findings.rows(finding) if most is None else findings.short(finding))
    left = len(all_of_them.found[most:]) if most is not None else 0
    lines += ["", f"  and {left} more"] if left else []
    return lines + ([""] + unjudged if unjudged else [])


def _found(all_of_them: Findings) -> str:
    """In a line."""
    if not all_of_them.found:
        return NOTHING_FOUND
    count, first = len(all_of_them.found), printable(all_of_them.found[0].title)
    return first if count == 1 else f"{count} findings, first of all: {first}"


def _details(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    for label, value in rows:
        yield from _wrapped(printable(value), f"     {printable(label):<{_DETAIL_WIDTH}}")


def _wrapped(text: str, first: str, width: int = _WIDTH) -> list[str]:
    rest = " " * len(first)
    lines = textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    return lines or [first.rstrip()]
