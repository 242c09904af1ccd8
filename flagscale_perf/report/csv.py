"""The rows of a report as CSV, for spreadsheets."""

from __future__ import annotations

from collections.abc import Iterator

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.spine.figures import csv_line


def lines(report: Report) -> Iterator[str]:
    """Comma-separated, with a head; unknown is empty, and no text is a formula. One by one, as there may be
    millions.
    """
    return map(csv_line, report.rows)


def render(report: Report) -> str:
    """All of them."""
    return "".join(lines(report))
