"""A report as JSON: all of it, for programs."""

from __future__ import annotations

import json

from flagscale_perf.analysis.blocks import Report


def render(report: Report) -> str:
    """Strict JSON in ASCII, newline at the end."""
    return json.dumps(report.content.as_dict(), indent=1, allow_nan=False, default=str) + "\n"
