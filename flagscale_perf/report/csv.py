"""A report's trend as CSV, for spreadsheets: a row for each point, with the columns of `--perf-csv`."""

from __future__ import annotations

from flagscale_perf.analysis.report import Report
from flagscale_perf.spine.figures import csv_line
from flagscale_perf.training.figures import TABLE


def render(report: Report) -> str:
    """Comma-separated, with a head; unknown is empty, and no text is a formula."""
    rows = (point.figures.values() for point in report.trend.points)
    return "".join(map(csv_line, (TABLE.csv_keys(), *rows)))
