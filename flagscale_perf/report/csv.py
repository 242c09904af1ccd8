"""The rows of a report as CSV, for spreadsheets."""

from __future__ import annotations

from collections.abc import Iterator

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.spine.figures import csv_line


def lines(report: Report) -> Iterator[str]:
    """The file line by line: there may be millions. Unknown values are empty, and no text is a formula."""
    return map(csv_line, report.rows)


def render(report: Report) -> str:
    """The whole file as one text."""
    return "".join(lines(report))
