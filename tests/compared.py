"""Comparisons of runs by their paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from flagscale_perf.analysis.compare.compare import CompareOptions, Comparison
from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.session import Session

Compare = Callable[[Sequence[Session], Sequence[Session], CompareOptions], Comparison]


def of_paths(compare: Compare) -> Callable[[Sequence[Path], Sequence[Path], CompareOptions], Comparison]:
    """The same of run files."""
    return lambda base, new, options: compare([*map(open_session, base)], [*map(open_session, new)], options)
