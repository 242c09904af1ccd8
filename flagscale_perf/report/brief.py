"""A report in few words, for a program that reads text, such as a language model: lines of `key: value`.

At most 2,000 tokens, at four ASCII characters each; any other character counts as a token. Each part has room
of its own, so that many findings leave what is not known in it; the last line counts what did not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flagscale_perf.analysis.blocks import Note, Pairs, Report, Section, StackedBar, Table, Tile
from flagscale_perf.report.findings import causes, changed, changes, cost, evidence, explanations
from flagscale_perf.report.format import bar_rows, shown
from flagscale_perf.spine.language import DEPTH, ENGLISH, using
from flagscale_perf.spine.units import UNKNOWN, printable, ranges

CHARACTERS = 4  # of a token
_ROOM = {
    "run": 900,
    "finding": 3_500,
    "unknown": 900,
    "figure": 1_000,
    "time": 1_300,
}  # characters of each part
_LINE = 320  # characters of a line at most
_HEAD = "flagscale_perf brief 1; units stand behind numbers; '-' is not known; `report --full` has all of it"


def render(report: Report) -> str:
    """The text, newline at the end, in English. Each value is one of the whole report."""
    lines, left = [_HEAD], 0
    with using(ENGLISH):
        for part, made in _parts(report).items():
            room = _ROOM[part]
            for line in map(_cut, made):
                weight = _weight(line)
                if weight > room:
                    left += 1
                    continue
                room -= weight
                lines.append(line)
    if left:
        lines.append(f"left_out: {left} lines")
    return "\n".join(lines) + "\n"


def _weight(text: str) -> int:
    return sum(1 if each.isascii() else CHARACTERS for each in text) + 1


def _cut(line: str) -> str:
    line = printable(line)
    if _weight(line) <= _LINE:
        return line
    room, end = _LINE - len("..."), 0
    while (room := room - (_weight(line[end]) - 1)) > 0:
        end += 1
    return line[:end] + "..."


def _parts(report: Report) -> dict[str, Iterable[str]]:
    return {
        "run": _run(report),
        "finding": _findings(report),
        "unknown": _unknown(report),
        "figure": (f"figure.{_key(tile.label)}: {_tile(tile)}" for tile in report.tiles),
        "time": _times(report),
    }


def _run(report: Report) -> Iterator[str]:
    yield f"run: {shown(report.title)}"
    if report.subject:
        yield f"run.subject: {report.subject}"
    if report.state:
        yield f"run.state: {report.state}"
    pairs = [row for block in report.head if isinstance(block, Pairs) for row in block.rows]
    yield from (f"run.{_key(label)}: {shown(cell)}" for label, cell in pairs if cell is not None)
    notes = [block for block in report.head if isinstance(block, Note)]
    yield from (f"run.note.{number}: {shown(note.text)}" for number, note in enumerate(notes, 1))


def _findings(report: Report) -> Iterator[str]:
    """What there is of each and what it costs, then what to change, then evidence and causes."""
    if report.findings is None:
        return
    found = report.findings.found
    yield f"findings: {len(found)}"
    if not found:
        yield f"findings.none: {report.findings.why_none}"
    for place, one in enumerate(found, 1):
        yield f"finding.{place}: {one.title}"
        yield f"finding.{place}.id: {one.name}"
        yield f"finding.{place}.costs: {cost(one)}"
        yield from (f"finding.{place}.change.1: {changed(each)}" for each in changes(one)[:1])
    for place, one in enumerate(found, 1):
        for number, each in enumerate(one.evidence, 1):
            yield f"finding.{place}.evidence.{number}: {evidence(each)}"
        if one.ranks:
            yield f"finding.{place}.ranks: {ranges(one.ranks)}"
        for number, (by, text) in enumerate(explanations(one), 1):
            yield f"finding.{place}.{_key(by)}.{number}: {text}"
        if known := causes(one):
            yield f"finding.{place}.causes: {'; '.join(known)}"
        for number, change in enumerate(changes(one)[1:], 2):
            yield f"finding.{place}.change.{number}: {changed(change)}"


def _unknown(report: Report) -> Iterator[str]:
    for number, phrase in enumerate(() if report.findings is None else report.findings.unjudged, 1):
        yield f"unknown.{number}: {phrase}"
    dark = [_key(tile.label) for tile in report.tiles if shown(tile.value) == UNKNOWN]
    if dark:
        yield f"unknown.figures: {', '.join(dark)}"


def _times(report: Report) -> Iterator[str]:
    """The sections that fit a screen: they say where the time goes."""
    for section in [each for each in report.sections if each.on_screen] or report.sections[:1]:
        yield from _section(section)


def _section(section: Section) -> Iterator[str]:
    name = f"time.{_key(section.menu or section.title)}"
    for block in section.blocks:
        match block:
            case Pairs(rows=rows):
                yield from (
                    f"{name}.{_key(label)}: {shown(cell)}" for label, cell in rows if cell is not None
                )
            case StackedBar() if block.in_words:
                yield from (f"{name}.{_key(label)}: {text}" for label, text in bar_rows(block))
            case Table():
                yield from (f"{name}.{line}" for line in _rows(block))


def _rows(table: Table) -> list[str]:
    """The texts in front name a row, behind those that it is a part of; its figures follow, each behind what
    the head calls it. Wholes come before their parts.
    """
    names, found, above = max(1, len(table.head) - table.figures), list[tuple[int, str]](), list[str]()
    for row in table.rows:
        label = ".".join(shown(cell) for cell in row[:names])
        depth = label.count(DEPTH)
        above = [*above[:depth], _key(label.replace(DEPTH, ""))]
        figures = [
            f"{title} {shown(cell)}".strip()
            for title, cell in zip(table.head[names:], row[names:], strict=False)
            if cell not in (None, "")
        ]
        found.append((depth, f"{'.'.join(above)}: {', '.join(figures)}"))
    return [line for _, line in sorted(found, key=lambda one: one[0])]


def _tile(tile: Tile) -> str:
    return shown(tile.value) + ("" if tile.note is None else f" ({shown(tile.note)})")


def _key(label: str) -> str:
    """The label as a part of a key: no space, no colon."""
    return "_".join(printable(label).replace(":", " ").replace(",", " ").split()) or "all"
