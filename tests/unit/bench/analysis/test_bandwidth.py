"""A bandwidth test in figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.analysis.blocks import HeatMap
from flagscale_perf.analysis.job import open_session
from flagscale_perf.bench.analysis.bandwidth import SHOWN
from flagscale_perf.bench.analysis.collectives import algbw, busbw
from flagscale_perf.bench.analysis.report import read_report, report_of
from flagscale_perf.bench.analysis.source import Part, read_bench
from flagscale_perf.bench.recording import Clock
from flagscale_perf.report import text
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
    return read_bench(open_session(book.path)).parts["bandwidth"]


def test_bus_bandwidth_is_by_what_was_executed(part: Part) -> None:
    """Of 4 ranks: 2 GB/s of a GB in half a second, by 2 x 3/4, the same, by 3/4, by 1."""
    found = [(point.case["op"], algbw(point), busbw(point)) for point in part.points]
    assert found == [
        ("all_reduce", 2.0, 3.0),
        ("reduce_scatter", 2.0, 3.0),
        ("all_gather", 2.0, 1.5),
        ("broadcast", 2.0, 2.0),
        ("send_recv", 2.0, None),
        ("triad", 6.0, None),
    ]


def test_verdicts_are_absolute_and_by_the_cards_own_ceiling(tmp_path: Path) -> None:
    with book_in(tmp_path) as book, book.part("bandwidth", None, {}) as part:
        message(part, (0, 1), [0.005])  # 200 GB/s: equal to a limit is good
        message(part, (1, 0), [0.010])
        message(part, (0, 1), [0.001], way="both ways")
        local(part, "copy", 0, [0.001])  # 2000 GB/s
        part.value("ceiling", "GB/s", {"of": "nvlink", "gpu": 0}, 400.0, "12 links")
        part.value("ceiling", "GB/s", {"of": "nvlink", "gpu": 1}, 300.0, "9 links")
        part.value("ceiling", "GB/s", {"of": "memory", "gpu": 0}, 4000.0, "its clock and width")
    verdicts = SHOWN.verdicts(read_bench(open_session(book.path)).parts["bandwidth"])
    assert [(one.name, one.value, one.verdict) for one in verdicts] == [
        ("P2P", 200.0, "good"),
        ("NVLink utilisation", pytest.approx(2 / 3), "excellent"),  # of the slower card's
        ("memory bandwidth", 2000.0, "excellent"),
        ("memory bandwidth, share of its peak", 0.5, "improve"),
    ]


def test_a_ceiling_that_nobody_knows_is_said(tmp_path: Path) -> None:
    with book_in(tmp_path) as book, book.part("bandwidth", None, {}) as part:
        message(part, (0, 1), [0.01])
        part.value("ceiling", "GB/s", {"of": "nvlink"}, None, "no NVIDIA driver")
    verdicts = SHOWN.verdicts(read_bench(open_session(book.path)).parts["bandwidth"])
    assert [(one.verdict, one.remark) for one in verdicts] == [
        ("good", "the fastest message, one way"),
        (None, "no NVIDIA driver"),
        (None, "no copy was measured"),
        (None, "not measured"),
    ]


def test_a_matrix_has_the_largest_messages_from_rank_to_rank(tmp_path: Path) -> None:
    with book_in(tmp_path) as book, book.part("bandwidth", None, {}) as part:
        message(part, (0, 1), [0.5])
        message(part, (1, 0), [0.25])
        message(part, (0, 1), [1.0], way="both ways")
        message(part, (0, 1), [9.0], size=1)
    (heat,) = [
        block
        for block in SHOWN.drawn(read_bench(open_session(book.path)).parts["bandwidth"])
        if isinstance(block, HeatMap)
    ]
    assert [layer.values for layer in heat.layers] == [
        [[None, 2.0], [4.0, None]],
        [[None, 1.0], [1.0, None]],
    ]


def test_json_has_both_bandwidths_with_their_unit(part: Part) -> None:
    content = SHOWN.content(part)
    first = content["bandwidths"][0]
    assert (first["op"], first["algbw_GBps"], first["busbw_GBps"], first["bus_factor"]) == (
        "all_reduce",
        2.0,
        3.0,
        1.5,
    )
    assert content["slow"] == []


@pytest.mark.parametrize(
    "case",
    [
        {"op": "all_reduce", "executed": "all_reduce"},
        {"op": "all_reduce", "executed": "all_reduce", "ranks": "two", "size_bytes": GB},
        {"op": "send_recv", "size_bytes": GB, "way": "one way"},
        {"op": "copy", "size_bytes": GB, "moved_bytes": None, "rank": 0},
        {"op": ["copy"], "size_bytes": -1},
    ],
)
def test_a_damaged_point_is_left_out(tmp_path: Path, case: dict[str, Any]) -> None:
    hostile = {"said": 3, "topology": {"pairs": 7}}
    facts = {"versions": [], "variables": 1}
    with book_in(tmp_path, facts) as book, book.part("bandwidth", None, hostile) as part:
        part.point("time", "s", case, [1.0], Clock(1))
        collective(part, "all_reduce", GB, [0.5])
        collective(part, "all_reduce", GB, [-0.5, 0.0])
    report = report_of(read_report(open_session(book.path)))
    assert "500,000.0" in text.render(report)
    assert len(SHOWN.content(read_bench(open_session(book.path)).parts["bandwidth"])["bandwidths"]) == 1
