"""Collectives in figures: fits, rows and curves."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.analysis.blocks import Series, Table
from flagscale_perf.analysis.job import open_session
from flagscale_perf.bench.analysis.collectives import collectives, curves, fits_of
from flagscale_perf.bench.analysis.source import read_bench
from flagscale_perf.report.format import cells
from tests.bench_runs import GB, book_in, collective


def test_times_by_size_become_a_line(tmp_path: Path) -> None:
    """0.1 s and 10 GB/s."""
    with book_in(tmp_path) as book, book.part("bandwidth", None, {}) as part:
        for size in (GB, 2 * GB, 4 * GB):
            collective(part, "all_reduce", size, [0.1 + size / (10 * GB)])
    (found,) = fits_of(read_bench(open_session(book.path)).parts["bandwidth"]).values()
    assert (found.alpha_s, found.beta_bytes_per_s) == (pytest.approx(0.1), pytest.approx(1e10))


def test_a_row_for_each_size_and_a_curve_for_each_operation(tmp_path: Path) -> None:
    """4 ranks, 1 and 2 GB."""
    with book_in(tmp_path) as book, book.part("bandwidth", None, {}) as part:
        collective(part, "reduce_scatter", GB, [0.5], executed="all_reduce")
        collective(part, "all_gather", 2 * GB, [1.0])
        collective(part, "all_gather", GB, [0.5])
    found = read_bench(open_session(book.path)).parts["bandwidth"]
    (table,) = [block for block in collectives(found) if isinstance(block, Table)]
    half = ["1,000,000,000", "500,000.0", "500,000.0", "2.000"]
    assert cells(table)[1:] == [
        ["reduce_scatter (executed: all_reduce)", *half, "3.000"],
        ["all_gather", *half, "1.500"],
        ["all_gather", "2,000,000,000", "1,000,000.0", "1,000,000.0", "2.000", "1.500"],
    ]
    (drawn,) = curves(found)
    assert isinstance(drawn, Series)
    assert [(line.label, line.y) for line in drawn.panels[0].lines] == [
        ("reduce_scatter", [5e5]),
        ("all_gather", [1e6, 5e5]),
    ]
