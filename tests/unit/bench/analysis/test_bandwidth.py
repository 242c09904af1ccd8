"""A bandwidth test in figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.bench.analysis.bandwidth import algbw, busbw
from flagscale_perf.bench.analysis.source import Part, read_bench
from tests.bench_runs import GB, book_in, collective, local, message


@pytest.fixture
def part(tmp_path: Path) -> Part:
    with book_in(tmp_path) as book, book.part("bandwidth", None, {}) as part:
        collective(part, "all_reduce", GB, [0.5])
        collective(part, "reduce_scatter", GB, [0.5], executed="all_reduce")
        collective(part, "all_gather", GB, [0.5])
        collective(part, "broadcast", GB, [0.5])
        message(part, (0, 1), [0.5])
        local(part, "triad", 0, [0.5], 3 * GB)
    return read_bench(book.path).parts["bandwidth"]


def test_bus_bandwidth_is_by_what_was_executed(part: Part) -> None:
    """Of 4 ranks: 2 GB/s of a GB in half a second, by 2 x 3/4, the same, by 3/4, by 1."""
    found = [(point.case["op"], algbw(point), busbw(point)) for point in part.points]
    assert found == [
        ("all_reduce", 2.0, 3.0), ("reduce_scatter", 2.0, 3.0), ("all_gather", 2.0, 1.5),
        ("broadcast", 2.0, 2.0), ("send_recv", 2.0, None), ("triad", 6.0, None),
    ]  # fmt: skip
