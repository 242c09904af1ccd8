"""Extension points of the profile report: kinds of operators and modules, metrics and charts.

Registered by a call, or by an entry point of the group `flagscale_perf.profile`, whose module is imported
before a report is made and makes these calls.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib import metadata
from typing import Any

from flagscale_perf.analysis.blocks import Block
from flagscale_perf.profile.analysis.operators import forget_operators, register_module, register_operator
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.spine.errors import PerfError

GROUP = "flagscale_perf.profile"
Metric = Callable[[ProfileReport], Any]
Chart = Callable[[ProfileReport], Block]
METRICS: dict[str, Metric] = {}  # by name
CHARTS: dict[str, Chart] = {}

__all__ = ["CHARTS", "METRICS", "chart", "forget", "load", "metric", "register_module", "register_operator"]


def metric(make: Metric) -> Metric:
    """Shows what the function returns, a number or a text, under its name in every report and in the JSON."""
    METRICS[make.__name__] = make
    return make


def chart(make: Chart) -> Chart:
    """Shows the function's block at the end of every report, and as a PNG and a CSV under its name."""
    CHARTS[make.__name__] = make
    return make


def forget() -> None:
    """Undoes every registration of metrics, charts and operators."""
    METRICS.clear()
    CHARTS.clear()
    forget_operators()


def load(modules: tuple[str, ...] = ()) -> None:
    """Imports these modules and those of the entry points. Raises PerfError if one cannot be imported."""
    for name in (*modules, *(entry.module for entry in metadata.entry_points(group=GROUP))):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise PerfError(f"{name!r} cannot be imported ({error}); name a module on PYTHONPATH") from None
