"""A run file of experiments, read."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.bench.analysis.source import Part, case_text, read_bench, spread
from flagscale_perf.bench.recording import Book, Clock
from flagscale_perf.bench.records import BenchBegun, BenchEnded, BenchPoint
from tests.run_files import left_behind


@pytest.mark.parametrize(
    ("samples", "shown"),
    [
        ([3.0], (3.0, 3.0, 3.0, 1)),
        ([5.0, 1.0, 4.0, 2.0], (3.0, 1.0, 5.0, 4)),
        ([float(number) for number in range(100, 0, -1)], (50.5, 1.0, 95.0, 100)),
    ],
)
def test_repetitions_have_a_median_a_minimum_and_a_percentile(
    samples: list[float], shown: tuple[float, ...]
) -> None:
    assert spread(samples) == shown


def test_experiments_are_read_one_by_one(tmp_path: Path) -> None:
    with Book.begin(tmp_path, {"cores": 2}) as book:
        with book.part("bandwidth", 2, {"ranks": 2}) as part:
            part.point("time", "s", {"op": "copy", "rank": 0}, [1.0], Clock(1))
            part.point("time", "s", {"op": "copy", "rank": 1}, [2.0], Clock(1))
            part.value("ceiling", "GB/s", {}, None, "no NVIDIA driver")
        with book.part("latency", None, {}):
            pass
    bench = read_bench(open_session(book.path))
    assert (list(bench.parts), bench.state, bench.header.facts) == (
        ["bandwidth", "latency"],
        "completed",
        {"cores": 2},
    )
    found = bench.parts["bandwidth"]
    assert (found.state, found.count, found.settings) == ("complete", "2 points", {"ranks": 2})
    assert [point.samples for point in found.of("time", op="copy", rank=1)] == [[2.0]]
    assert [one.why for one in found.values("ceiling")] == ["no NVIDIA driver"]
    assert found.of("ttft") == found.values("ceiling", gpu=0) == []
    assert bench.reading.records["bench_point"] == 2


def test_one_that_was_run_again_is_shown_as_it_was_last_and_that_is_said(tmp_path: Path) -> None:
    with Book.begin(tmp_path, {}) as book:
        for seconds in (1.0, 2.0, 3.0):
            with book.part("bandwidth", 1, {}) as part:
                part.point("time", "s", {"op": "copy", "rank": 0}, [seconds], Clock(1))
    bench = read_bench(open_session(book.path))
    assert [point.samples for point in bench.parts["bandwidth"].points] == [[3.0]]
    assert bench.reading.remarks == ["bandwidth was run 3 times; only the last one is shown"]


def test_one_that_was_killed_is_partial(tmp_path: Path) -> None:
    book = Book.begin(tmp_path, {})
    book.put(BenchBegun("bandwidth", 1, 5, {}))
    book.put(BenchPoint("bandwidth", "time", "s", {}, 1, 1, [1.0]))
    assert (
        read_bench(open_session(book.path)).state,
        read_bench(open_session(book.path)).parts["bandwidth"].state,
    ) == (
        "running",
        "running",
    )
    book._file.close()  # as the kernel does with a killed process
    found = read_bench(open_session(left_behind(book.path)))
    assert (found.state, found.parts["bandwidth"].state) == ("killed", "partial: killed")
    assert found.parts["bandwidth"].count == "1 of 5 points"


def test_a_partial_one_says_why() -> None:
    part = Part("bandwidth", ended=BenchEnded("bandwidth", 1, False, "rank 1 failed"))
    assert (part.state, part.is_complete) == ("partial: rank 1 failed", False)


def test_a_case_reads_as_words() -> None:
    assert case_text({"ranks": 2, "op": "all_reduce", "size_bytes": 8}) == "all_reduce, ranks 2, size_bytes 8"
