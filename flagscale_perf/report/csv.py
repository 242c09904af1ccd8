"""A report's trend as CSV, for spreadsheets: a row for each point."""

from __future__ import annotations

import csv
import io
from dataclasses import fields
from typing import Any

from flagscale_perf.analysis.report import Point, Report
from flagscale_perf.spine.units import printable
from flagscale_perf.training.phases import PHASES

_FORMULA = tuple("=+-@\t\r")  # how a text begins that a spreadsheet would compute
_NESTED = ("phases_ms", "groups_ms")
_COLUMNS = [field.name for field in fields(Point) if field.name not in _NESTED]


def render(report: Report) -> str:
    """Comma-separated, with a head; unknown is empty, and no text is a formula."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*_COLUMNS, *(f"phase_{name}_ms" for name in PHASES)])
    for point in report.trend.points:
        phases = point.phases_ms or {}
        writer.writerow(
            [_cell(getattr(point, name)) for name in _COLUMNS] + [_cell(phases.get(name)) for name in PHASES]
        )
    return file.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
