"""A session of calls in every format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagscale_perf.analysis.blocks import Report, Series, Table, Waterfall
from flagscale_perf.analysis.job import open_session
from flagscale_perf.report import html, png, text
from flagscale_perf.report import json as report_json
from flagscale_perf.rpc.analysis.instrument import INSTRUMENT
from tests.golden import golden
from tests.rpc_sessions import REQUIREMENT_LOG, SMALL, llama_calls, make_call, make_served, split, write_run


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    """Of a small model, so that the golden files are."""
    monkeypatch.chdir(tmp_path)
    calls = llama_calls(split(SMALL, 512))
    served = [make_served(call.number, method=call.method) for call in calls]
    return INSTRUMENT.report(open_session(write_run(Path(), [*calls, *served])))


def blocks_of(report: Report, kind) -> list:
    return [block for section in report.sections for block in section.blocks if isinstance(block, kind)]


def test_as_text(report) -> None:
    assert text.render(report) == golden("rpc_report.txt")


def test_as_json(report) -> None:
    assert json.loads(report_json.render(report))["overall"]["calls"] == 26


def test_of_a_log_of_others(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("zmq_performance.log").write_text(REQUIREMENT_LOG)
    assert text.render(INSTRUMENT.report(open_session(Path("zmq_performance.log")))) == golden(
        "rpc_report_foreign.txt"
    )


def test_the_layer_falls_from_call_to_call(report) -> None:
    (fall,) = blocks_of(report, Waterfall)
    ends = [lane.start + sum(part.value or 0 for part in lane.parts) for lane in fall.lanes]
    assert [lane.label.split()[1] for lane in fall.lanes] == [
        "BatchLinear",
        "Matmul",
        "Matmul",
        "BatchLinear",
        "BatchLinear",
        "BatchLinear",
    ]
    assert all(lane.start >= end for lane, end in zip(fall.lanes[1:], ends, strict=False))
    assert fall.span == pytest.approx(ends[-1])


def test_shares_of_methods_and_stages_add_up(report) -> None:
    (methods, *_) = blocks_of(report, Table)
    assert round(sum(row[-1].value * 1000 for row in methods.rows)) == 1000


def test_how_much_the_stages_vary(tmp_path) -> None:
    calls = [make_call(n, serialize_ns=n * 1_000_000, total_ns=20_000_000) for n in (1, 2, 3, 4, 100)]
    tables = blocks_of(INSTRUMENT.report(open_session(write_run(tmp_path, calls))), Table)
    (spread,) = (each for each in tables if each.head[0] == "stage")
    row = next(each for each in spread.rows if each[0] == "serialize")
    assert [cell.value for cell in row[1:]] == [2, 3, 4, 100, 100]


def test_as_a_page_and_a_picture(report) -> None:
    page = html.render(report)
    assert 'id="chart-layer-time"' in page
    assert png.render(report).startswith(b"\x89PNG")


def test_failures_and_gaps_are_said(tmp_path) -> None:
    report = INSTRUMENT.report(open_session(write_run(tmp_path, [make_call(1), make_call(9, status=1)])))
    notes = text.render(report)
    assert "1 of 2 calls failed" in notes and "7 calls are missing, by the gaps in their numbers" in notes


def test_a_session_without_calls_says_so(tmp_path) -> None:
    assert "no call has been recorded" in text.render(
        INSTRUMENT.report(open_session(write_run(tmp_path, [])))
    )


def test_where_no_call_was_recorded_there_is_nothing_to_judge(tmp_path: Path) -> None:
    assert "nothing to judge: no call was recorded" in text.render(
        INSTRUMENT.report(open_session(write_run(tmp_path, [])))
    )


def test_of_many_calls_the_shortest_and_the_longest_are_drawn(tmp_path) -> None:
    slow = {700: 9_000_000, 2900: 7_000_000}
    calls = [make_call(n, total_ns=slow.get(n, 1_000_000 + n)) for n in range(1, 3001)]
    report = INSTRUMENT.report(open_session(write_run(tmp_path, calls)))
    (series,) = blocks_of(report, Series)
    numbers = series.panels[0].lines[0].x
    assert series.panels[0].title == "Stages, the shortest and the longest call of each stretch"
    assert 1000 <= len(numbers) <= 2001 and {*slow} < {*numbers}
