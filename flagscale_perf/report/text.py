"""A report as aligned text for a terminal; findings come first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from flagscale_perf.analysis.blocks import (
    Block,
    Findings,
    Note,
    Pairs,
    Report,
    Section,
    StackedBar,
    Table,
    Tile,
    Waterfall,
)
from flagscale_perf.report import findings
from flagscale_perf.report.format import as_table, bar_rows, cells, left_out, shown
from flagscale_perf.report.language import translated
from flagscale_perf.spine.language import said, say
from flagscale_perf.spine.units import UNKNOWN, aligned, columns, filled, printable, wrapped

_LABEL_WIDTH, _DETAIL_WIDTH = 16, 15
_WIDTH, _NOTE_WIDTH = 120, 80
SCREEN_LINES, SCREEN_WIDTH = 40, 100
_SCREEN_FINDINGS, _HEAD_LINES, _TILES = 3, 6, 6
_FEWEST_LINES = 4  # of a section that is shown at all
_SHARE = "\N{NO-BREAK SPACE}%"  # while lines are wrapped: a figure and its unit stay on one line
_TEXT_LINES = SCREEN_LINES - 3  # what was found, the page and the next command come below


def render(report: Report) -> str:
    """The whole text, newline at the end. No character in it moves the cursor of a terminal."""
    report = translated(report)
    parts = [[printable(shown(report.title)), *_blocks(report.head)]]
    if report.findings is not None:
        parts.append(_findings(report.findings))
    if report.tiles:
        parts.append([say("Key figures"), *_labelled(_tiles(report.tiles))])
    parts += [lines for section in report.sections if (lines := _section(section))]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def alone(blocks: Sequence[Block]) -> str:
    """Blocks without a report around them."""
    return "\n".join(_blocks(blocks))


def screen(report: Report) -> str:
    """One screen: head, costliest findings, key figures, where the time goes; last what was found."""
    report = translated(report)
    head = [printable(shown(report.title)), *_first(_blocks(report.head), _HEAD_LINES)]
    parts, last = [[_fitted(line) for line in head]], []
    if report.findings is not None:
        parts.append(_short_findings(report.findings))
        last = [say("found  {0}", _found(report.findings))]
    if tiles := _tiles([tile for tile in report.tiles if shown(tile.value) != UNKNOWN]):
        parts.append([say("Key figures"), *map(_fitted, _first(_labelled(tiles), _TILES))])
    left = _TEXT_LINES - 1 - sum(len(part) + 1 for part in parts)
    parts += [*_sections_on_screen(report.sections, left), last]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _sections_on_screen(sections: Sequence[Section], left: int) -> Iterator[list[str]]:
    for section in [each for each in sections if each.on_screen] or sections[:1]:
        if left >= _FEWEST_LINES:
            lines = [_fitted(line) for line in _first(_section(section, SCREEN_WIDTH), left)]
            left -= len(lines) + 1
            yield lines


def _section(section: Section, width: int = _WIDTH) -> list[str]:
    """Title and blocks; nothing where no block has words."""
    lines = list(_blocks(section.blocks, width))
    return [printable(section.title), *lines] if section.title and lines else lines


def _first(lines: Iterable[str], most: int) -> list[str]:
    """The first lines that are not empty; the last one counts those that are left out."""
    all_of_them = [line for line in lines if line]
    left = len(all_of_them) - most
    return (
        all_of_them if left <= 0 else [*all_of_them[: most - 1], say("  and {0} more lines", str(left + 1))]
    )


def _fitted(line: str) -> str:
    if columns(line) <= SCREEN_WIDTH:
        return line
    while columns(line) > SCREEN_WIDTH - 3:
        line = line[:-1]
    return line + "..."


def _blocks(blocks: Sequence[Block], width: int = _WIDTH) -> Iterator[str]:
    for place, block in enumerate(blocks):
        match block:
            case Pairs():
                yield from _labelled([(label, shown(cell)) for label, cell in block.rows if cell is not None])
            case Table():
                yield from [""] * bool(place and block.title)
                yield from _table(block)
            case Waterfall():
                yield from [""] * bool(place)
                yield from _table(as_table(block))
            case StackedBar() if block.in_words:
                yield from _labelled(bar_rows(block))
            case Note():
                yield from _wrapped(printable(shown(block.text)), "  ", width)


def _labelled(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    wide = [columns(label) for label, _ in rows]
    width = max([_LABEL_WIDTH, *(each + 2 for each in wide if each < 2 * _LABEL_WIDTH)])
    for label, value in rows:
        yield f"  {filled(printable(label) + '  ', width)}{printable(value)}".rstrip()


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


def _findings(all_of_them: Findings) -> list[str]:
    unjudged = list(_labelled([(say("not judged"), phrase) for phrase in all_of_them.unjudged]))
    if not all_of_them.found:
        return [*_no_findings(all_of_them), *unjudged]
    lines = [say("Findings: {0}", str(len(all_of_them.found)))]
    for place, finding in enumerate(all_of_them.found, 1):
        lines += [""] * (place > 1) + [f"  {place}. {printable(findings.title(finding))}"]
        lines += _details(findings.rows(finding))
    return lines + ([""] + unjudged if unjudged else [])


def _short_findings(all_of_them: Findings) -> list[str]:
    """The costliest findings with cost and best change; how many others; what could not be judged."""
    lines = [say("Findings: {0}", str(len(all_of_them.found)))]
    for place, finding in enumerate(all_of_them.found[:_SCREEN_FINDINGS], 1):
        lines += _wrapped(printable(findings.title(finding)), f"  {place}. ", SCREEN_WIDTH)
        lines += _details(findings.short(finding), SCREEN_WIDTH)
    if left := len(all_of_them.found[_SCREEN_FINDINGS:]):
        lines.append(say("  and {0} more", str(left)))
    elif not all_of_them.found:
        lines = _no_findings(all_of_them)
    if unjudged := all_of_them.unjudged:
        more = say(" (and {0} more)", str(len(unjudged) - 1)) if len(unjudged) > 1 else ""
        label = filled(say("not judged"), _LABEL_WIDTH)
        lines += _wrapped(printable(unjudged[0]) + more, f"  {label}", SCREEN_WIDTH)
    return lines


def _no_findings(all_of_them: Findings) -> list[str]:
    return [say("Findings"), *_labelled([(say("none"), said(all_of_them.why_none))])]


def _found(all_of_them: Findings) -> str:
    if not all_of_them.found:
        return f"{say('nothing: ') if all_of_them.nothing is None else ''}{said(all_of_them.why_none)}"
    count, first = len(all_of_them.found), printable(findings.title(all_of_them.found[0]))
    return first if count == 1 else say("{0} findings, first of all: {1}", str(count), first)


def _details(rows: Iterable[tuple[str, str]], width: int = _WIDTH) -> Iterator[str]:
    for label, value in rows:
        yield from _wrapped(printable(value), f"     {filled(printable(label), _DETAIL_WIDTH)}", width)


def _wrapped(text: str, first: str, width: int = _WIDTH) -> list[str]:
    lines = wrapped(text.replace(" %", _SHARE), width, first)
    return [line.replace(_SHARE, " %") for line in lines] or [first.rstrip()]
