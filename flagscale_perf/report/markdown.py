"""A report as Markdown (GitHub's dialect), for an issue, a pull request or a wiki."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flagscale_perf.analysis.blocks import (
    Block,
    Findings,
    Note,
    Pairs,
    Report,
    StackedBar,
    Table,
    Waterfall,
)
from flagscale_perf.report import findings
from flagscale_perf.report.format import as_table, bar_rows, cells, left_out, shown
from flagscale_perf.report.language import translated
from flagscale_perf.spine.language import said, say
from flagscale_perf.spine.units import printable

# What could begin markup or another cell; a tag, an entity, a mention or a reference; an address that becomes
# a link by itself.
_MARKUP = re.compile(r"[\\`*_\[\]|~$]")
_ACTIVE = re.compile(r"[<>&@#]|:(?=//)|(?<=www)\.", re.IGNORECASE)


def render(report: Report) -> str:
    """The whole page, newline at the end. Texts of the run file are never read as markup."""
    report = translated(report)
    parts = [f"# {escaped(shown(report.title))}\n", *_blocks(report.head)]
    if report.findings is not None:
        parts.append(_findings(report.findings))
    if report.tiles:
        rows = [(tile.label, shown(tile.value), shown(tile.note or "")) for tile in report.tiles]
        parts += [f"## {say('Key figures')}\n", _piped([(say("figure"), say("value"), ""), *rows])]
    for section in report.sections:
        if made := list(_blocks(section.blocks)):
            parts += [f"## {escaped(section.title)}\n"] * bool(section.title) + made
    return "\n".join(parts)


def escaped(text: str) -> str:
    """The text on one line, for Markdown and HTML to show literally."""
    return _MARKUP.sub(r"\\\g<0>", _ACTIVE.sub(lambda match: f"&#{ord(match[0])};", printable(text)))


def _blocks(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        match block:
            case Pairs():
                rows = [(label, shown(cell)) for label, cell in block.rows if cell is not None]
                yield _piped([("", ""), *rows])
            case Table():
                yield from _table(block)
            case Waterfall():
                yield from _table(as_table(block))
            case StackedBar() if block.in_words:
                yield _piped([("", ""), *bar_rows(block)])
            case Note():
                yield escaped(shown(block.text)) + "\n"


def _table(table: Table) -> Iterator[str]:
    if table.title:
        yield f"### {escaped(table.title)}\n"
    rows = cells(table)
    if table.notes:
        rows = [[*row, shown(note or "")] for row, note in zip(rows, ("", *table.notes), strict=False)]
    yield _piped(rows, table.figures, len(rows[0]) - len(table.head))
    if more := left_out(table):
        yield more + "\n"


def _piped(rows: Sequence[Sequence[str]], figures: int = 0, behind: int = 0) -> str:
    """The first row is the head. Figures are aligned right, the `behind` columns after them are not."""
    texts = len(rows[0]) - figures - behind
    rule = ["---"] * texts + ["---:"] * figures + ["---"] * behind
    lines = [[escaped(cell) for cell in row] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in (lines[0], rule, *lines[1:]))


def _findings(all_of_them: Findings) -> str:
    found = [
        f"{place}. **{escaped(findings.title(finding))}**\n"
        + "".join(
            f"   - {escaped(label)}{say(': ')}{escaped(text)}\n" for label, text in findings.rows(finding)
        )
        for place, finding in enumerate(all_of_them.found, 1)
    ]
    why = findings.capital(said(all_of_them.none_found))
    none = f"## {say('Findings')}\n\n{escaped(why)}{say('.')}\n"
    title = f"## {say('Findings: {0}', str(len(found)))}\n" if found else none
    unjudged = "".join(f"- {say('Not judged: {0}', escaped(phrase))}\n" for phrase in all_of_them.unjudged)
    return "\n".join([title, *found, *([unjudged] if unjudged else [])])
