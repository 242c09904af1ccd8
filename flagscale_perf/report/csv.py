"""The rows of a report as CSV, for spreadsheets."""

from __future__ import annotations

import csv
import io
from typing import Any

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.spine.units import printable

_FORMULA = tuple("=+-@\t\r")  # how a text begins that a spreadsheet would compute


def render(report: Report) -> str:
    """Comma-separated, with a head; unknown is empty, and no text is a formula."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows([_cell(value) for value in row] for row in report.rows)
    return file.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
