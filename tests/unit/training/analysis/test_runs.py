"""Trainings below a directory, side by side."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.analysis.job import open_session, sessions_below
from flagscale_perf.report import csv, html, text
from flagscale_perf.report import json as as_json
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.spine.session import file_names
from flagscale_perf.training.analysis import run_blocks, runs
from flagscale_perf.training.analysis.fold import read_summary
from flagscale_perf.training.analysis.run_blocks import report_of
from flagscale_perf.training.analysis.runs import RunList, list_runs
from flagscale_perf.training.summary.totals import RunTotals
from tests.fakes import MS, SECOND, make_facts, make_header, make_interval, make_step
from tests.golden import golden
from tests.run_files import left_behind, steady, write
from tests.unit.report.test_html import LIBRARY, Page, charts_of

SESSION = "20240129_103000"


def put(directory: Path, session_id: str = SESSION, end: str = "completed", **facts: Any) -> Path:
    """A run of 40 iterations with four intervals."""
    header = make_header(session_id, make_facts(**facts))
    records = [header, *steady(40), *map(make_interval, (10, 20, 30, 40))]
    records += [RunEnd(end, header.start_wall_ns + 10 * SECOND, 40, 0)] if end else []
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / file_names(session_id)["records"]
    path.write_bytes(b"".join(map(encode, records)))
    return path if end else left_behind(path)


def several(directory: Path) -> RunList:
    """Two runs in one directory, one of them killed, another below it, and three files that are no runs."""
    put(directory / "llama")
    put(directory / "llama", "20240129_110000", "", world_size=16, data_parallel=8)
    put(directory / "moe/mixtral", "20240130_090000", model_family="mixtral", expert_parallel=4)
    (directory / "moe/mixtral/perf_records_20240130_100000.jsonl").write_bytes(b"")
    (directory / "moe/perf_records_foreign.jsonl").write_bytes(b'{"some": "thing"}\n')
    with put(directory / "damaged", "20240131_090000").open("ab") as file:
        file.write(b'{"kind": "st\n')
    found = replace(sessions_below(directory), is_drawn=False)
    return replace(list_runs(found, False), directory="outputs")


@pytest.mark.parametrize(
    ("name", "render"),
    [("runs.txt", text.render), ("runs.json", as_json.render), ("runs.csv", csv.render)],
)
def test_every_format_is_as_promised(tmp_path, name, render) -> None:
    assert render(report_of(several(tmp_path))) == golden(name)


def test_the_list_fits_120_columns(tmp_path) -> None:
    listed = several(tmp_path)
    listed.unread.clear()
    assert max(map(len, text.render(report_of(listed)).splitlines())) <= 120


def test_a_slow_start_is_in_neither_figure(tmp_path, monkeypatch) -> None:
    path = write(
        tmp_path / file_names(SESSION)["records"],
        [
            make_step(number, warmup=int(number == 1), iteration_ns=(300 if number <= 10 else 100) * MS)
            for number in range(1, 61)
        ],
    )
    found = sessions_below(tmp_path)
    (from_records,) = list_runs(found, False).runs
    assert from_records.iteration_ms == 100
    path.with_name(file_names(SESSION)["summary"]).write_text(read_summary(open_session(path)).text())
    monkeypatch.setattr(runs, "LONG_BYTES", 100)
    (from_summary,) = list_runs(found, False).runs
    assert from_summary.iteration_ms == 100
    assert from_summary.tokens_per_s == from_records.tokens_per_s


def test_of_a_long_file_the_summary_is_taken_where_there_is_one(tmp_path, monkeypatch) -> None:
    path = put(tmp_path)
    found = sessions_below(tmp_path)
    (from_records,) = list_runs(found, False).runs
    assert (from_records.findings, from_records.skipped_lines) == (3, 0)
    for module in (runs, run_blocks):
        monkeypatch.setattr(module, "LONG_BYTES", 100)
    assert list_runs(found, False).runs == [from_records]  # there is none
    summary = path.with_name(file_names(SESSION)["summary"])
    summary.write_text(read_summary(open_session(path)).text())
    listed = list_runs(found, False)
    assert listed.runs == [replace(from_records, findings=None, first_finding=None, skipped_lines=None)]
    assert [value for _, value in listed.points[0]["iteration_ms"]] == [100, 100, 100, 100]
    assert "Findings of 1 runs with files above 0 MiB are not looked for; --read-all does." in text.render(
        report_of(listed)
    )
    assert list_runs(found, True).runs == [from_records]


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"session_info": 3}', "[" * 100_000, None],
    ids=["empty", "list", "dict", "number", "deep", "running"],
)
def test_a_summary_that_is_none_is_not_believed(tmp_path, monkeypatch, content) -> None:
    path = put(tmp_path, end="")
    totals = RunTotals(make_header(SESSION))
    running = json.dumps(totals.result().as_dict())
    path.with_name(file_names(SESSION)["summary"]).write_text(running if content is None else content)
    monkeypatch.setattr(runs, "LONG_BYTES", 100)
    (run,) = list_runs(sessions_below(tmp_path), False).runs
    assert (run.end_reason, run.iterations) == ("killed", 40)


def test_another_instruments_run_is_named(tmp_path) -> None:
    path = put(tmp_path)
    first, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(json.dumps(json.loads(first) | {"instrument": "another"}).encode() + b"\n" + rest)
    (unread,) = sessions_below(tmp_path).unread
    assert unread.path == path.name
    assert unread.reason.startswith("the instrument 'another' is not known; this version has bench")


def test_the_fastest_the_newest_and_the_slowest_are_ticked_and_only_runs_with_a_trend_can_be(
    tmp_path,
) -> None:
    speeds = {1: 100, 2: 90, 3: 120, 4: 110, 5: 100}  # ms of an iteration, by day
    for day, iteration_ms in speeds.items():
        path = put(tmp_path / str(day), f"2024010{day}_000000")
        header = replace(make_header(path.stem[13:]), start_wall_ns=day * SECOND)
        steps = [make_step(n, iteration_ns=iteration_ms * MS, warmup=int(n == 1)) for n in range(1, 41)]
        path.write_bytes(b"".join(map(encode, [header, *steps, *map(make_interval, (10, 20, 30, 40))])))
    empty = put(tmp_path / "6", "20240106_000000")
    empty.write_bytes(encode(replace(make_header("20240106_000000"), start_wall_ns=0)))
    page = Page(html.render_page(report_of(list_runs(sessions_below(tmp_path), False)), LIBRARY))
    boxes = [found for tag, found in page.elements if tag == "input"]
    assert [box["data-group"] for box in boxes] == [f"run{place}" for place in range(1, 6)]
    ticked = [int(box["data-group"][3:]) for box in boxes if "checked" in box]  # the oldest is the empty one
    assert ticked == [2, 3, 5]
    traces = charts_of(page)["trend"]["data"]
    assert {trace["meta"]["group"] for trace in traces} == {f"run{place}" for place in range(1, 6)}
    assert len([tag for tag, _ in page.elements if tag == "svg"]) == 5


def test_a_run_of_unknown_mfu_is_not_the_fastest(tmp_path) -> None:
    for day, facts in enumerate(({}, {"peak_flop_per_s": None}, {}), start=1):
        put(tmp_path / str(day), f"2024010{day}_000000", **facts)
    listed = list_runs(sessions_below(tmp_path), False)
    assert [run.mfu is None for run in listed.runs] == [False, True, False]
    assert run_blocks.rate_of(listed.runs) == "mfu"
    assert 1 not in run_blocks._drawn_first(listed, range(3))[:2]
    assert runs.rate_of(listed.runs[1:2]) == "tokens_per_s"


def test_many_runs_have_fewer_points_each(tmp_path, monkeypatch) -> None:
    header = make_header()
    path = tmp_path / file_names(SESSION)["records"]
    path.write_bytes(b"".join(map(encode, [header, *steady(40), *map(make_interval, range(10, 5010, 10))])))
    listed = list_runs(sessions_below(tmp_path), False)
    monkeypatch.setattr(run_blocks, "MAX_DRAWN_POINTS", 50)
    (drawn,) = (section for section in report_of(listed).sections if section.key == "trend")
    line = drawn.blocks[0].panels[0].lines[0]
    assert len(line.x) <= 50
    assert line.x[-1] == 5000
