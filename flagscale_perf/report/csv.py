"""The rows of a report as CSV, for spreadsheets."""

from __future__ import annotations

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.spine.figures import csv_line


def render(report: Report) -> str:
    """Comma-separated, with a head; unknown is empty, and no text is a formula."""
    return "".join(map(csv_line, report.rows))
