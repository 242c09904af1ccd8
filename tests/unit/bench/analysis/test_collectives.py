"""Collectives in figures: fits, both places side by side."""

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


def test_in_place_stands_beside_out_of_place(tmp_path: Path) -> None:
    """4 ranks, 1 GB; an operation has one of them, or both."""
    with book_in(tmp_path) as book, book.part("bandwidth", None, {}) as part:
        collective(part, "all_reduce", GB, [0.5], place="in place")
        collective(part, "all_gather", GB, [0.5])
        collective(part, "all_gather", GB, [0.25], place="in place")
        collective(part, "all_to_all", GB, [1.0])
    found = read_bench(open_session(book.path)).parts["bandwidth"]
    (table,) = [block for block in collectives(found) if isinstance(block, Table)]
    whole, none = "1,000,000,000", ["-"] * 4
    half = ["500,000.0", "500,000.0", "2.000"]
    assert cells(table)[1:] == [
        ["all_reduce", whole, *none, *half, "3.000"],
        ["all_gather", whole, *half, "1.500", "250,000.0", "250,000.0", "4.000", "3.000"],
        ["all_to_all", whole, "1,000,000.0", "1,000,000.0", "1.000", "0.750", *none],
    ]
    (drawn,) = curves(found)
    assert isinstance(drawn, Series)
    assert [(line.label, line.y) for line in drawn.panels[0].lines] == [
        ("all_reduce", [5e5]),
        ("all_gather", [5e5]),
        ("all_to_all", [1e6]),
    ]
