"""A report as Markdown (GitHub's dialect), for an issue, a pull request or a wiki."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flagscale_perf.analysis.report import Report
from flagscale_perf.analysis.rules import Finding
from flagscale_perf.report.sections import Section, finding_rows, sections_of
from flagscale_perf.spine.units import printable

# What could begin markup or another cell; a tag, an entity, a mention or a reference; an address that becomes
# a link by itself.
_MARKUP = re.compile(r"[\\`*_\[\]|~$]")
_ACTIVE = re.compile(r"[<>&@#]|:(?=//)|(?<=www)\.", re.IGNORECASE)


def render(report: Report) -> str:
    """The whole page, newline at the end; texts of the run file are shown as they are and never read as
    markup.
    """
    overview, *others = sections_of(report)
    return "\n".join(
        [f"# {escaped(overview.title)}\n", _table(overview), _findings(report), *map(_section, others)]
    )


def escaped(text: str) -> str:
    """The text so that Markdown and HTML show it literally, on one line."""
    return _MARKUP.sub(r"\\\g<0>", _ACTIVE.sub(lambda match: f"&#{ord(match[0])};", printable(text)))


def _section(section: Section) -> str:
    return f"## {escaped(section.title)}\n\n{_table(section)}"


def _table(section: Section) -> str:
    head = section.head or ("", "")
    numbers = "---:" if section.head else "---"
    rows = [_row(head), _row(["---", *[numbers] * (len(head) - 1)], is_rule=True), *map(_row, section.rows)]
    return "".join(rows)


def _row(cells: Sequence[str], is_rule: bool = False) -> str:
    return f"| {' | '.join(cell if is_rule else escaped(cell) for cell in cells)} |\n"


def _findings(report: Report) -> str:
    found = [_finding(place, finding) for place, finding in enumerate(report.findings, 1)]
    title = f"## Findings: {len(found)}\n" if found else "## Findings\n\nNone: nothing broke a limit.\n"
    unjudged = "".join(f"- Not judged: {escaped(phrase)}\n" for phrase in report.unjudged)
    return "\n".join([title, *found, *([unjudged] if unjudged else [])])


def _finding(place: int, finding: Finding) -> str:
    rows = [f"   - {escaped(label)}: {escaped(value)}\n" for label, value in finding_rows(finding)]
    return f"{place}. **{escaped(finding.title)}**\n" + "".join(rows)
