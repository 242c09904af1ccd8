"""A report as aligned text for a terminal: what holds the run back first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from flagscale_perf.analysis.report import Report
from flagscale_perf.analysis.rules import Finding
from flagscale_perf.report.sections import Row, Section, finding_rows, sections_of
from flagscale_perf.spine.units import printable

_LABEL_WIDTH = 16
_INDENT = " " * 5
_WIDTH = 120


def render(report: Report) -> str:
    """The whole text, newline at the end; no character in it can move a terminal's cursor."""
    overview, *others = sections_of(report)
    return "\n".join([_section(overview), _findings(report), *map(_section, others)])


def block(title: str, rows: Iterable[Row]) -> str:
    """A title and its rows of label and value, labels aligned."""
    return printable(title) + "\n" + "".join(map(_row, rows))


def _row(row: Row) -> str:
    label, value = map(printable, row)
    return f"  {label:<{_LABEL_WIDTH}}{value}".rstrip() + "\n"


def _section(section: Section) -> str:
    if not section.head:
        return block(section.title, section.rows)
    cells = [[printable(cell) for cell in row] for row in (section.head, *section.rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return printable(section.title) + "\n" + "".join(_line(row, widths) for row in cells)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    label, *others = row
    cells = [
        label.ljust(widths[0]),
        *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)),
    ]
    return f"  {'  '.join(cells)}".rstrip() + "\n"


def _findings(report: Report) -> str:
    unjudged = [("not judged", phrase) for phrase in report.unjudged]
    if not report.findings:
        return block("Findings", [("none", "nothing broke a limit"), *unjudged])
    found = [
        f"  {place}. {printable(finding.title)}\n{_details(finding)}"
        for place, finding in enumerate(report.findings, 1)
    ]
    rest = ["".join(map(_row, unjudged))] if unjudged else []
    return f"Findings: {len(found)}\n" + "\n".join([*found, *rest])


def _details(finding: Finding) -> str:
    return "".join(_wrapped(printable(label), printable(value)) for label, value in finding_rows(finding))


def _wrapped(label: str, value: str) -> str:
    first = f"{_INDENT}{label:<15}"
    lines = textwrap.wrap(
        value, _WIDTH, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False
    )
    return "\n".join(lines or [first.rstrip()]) + "\n"
