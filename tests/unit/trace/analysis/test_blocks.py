"""Traces as every format shows them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.report import csv, text
from flagscale_perf.spine.records import STOPPED
from flagscale_perf.trace.analysis.blocks import report_of
from flagscale_perf.trace.analysis.instrument import read_report
from tests.golden import golden
from tests.trace_runs import Job, lines_of_call, pipeline


def test_a_run_as_text(tmp_path: Path) -> None:
    assert text.render(report_of(read_report(open_session(pipeline().write(tmp_path))))) == golden(
        "trace_report.txt"
    )


@pytest.mark.parametrize("format_name", ["text", "markdown", "html", "json", "png"])
def test_every_format_shows_hostile_names_and_nothing_at_all(tmp_path: Path, format_name: str) -> None:
    job = Job()
    worker = job.process("<script>alert(1)</script>", 1)
    job.put(worker, 0, range(8), partition="\x1b[2J")
    job.get(worker, 10_000_000, range(8), partition="\x1b[2J", slowest_unit="<b>", slowest_unit_ns=1000)
    job.call(worker, "<i>f\n | stage=\x1b[2J", 0)
    render = importlib.import_module(f"flagscale_perf.report.{format_name}").render
    made = render(report_of(read_report(open_session(job.write(tmp_path)))))
    if isinstance(made, str):
        assert "\x1b[2J" not in made
        assert "<script>alert" not in made or format_name in ("text", "json")
    render(report_of(read_report(open_session(Job().write(tmp_path)))))


@pytest.mark.parametrize(("end", "tone"), [(STOPPED, "good"), ("completed", "good"), (None, "warn")])
def test_what_its_user_stopped_ended_well(tmp_path: Path, end: str | None, tone: str) -> None:
    assert report_of(read_report(open_session(pipeline(steps=1).write(tmp_path, end=end)))).tone == tone


def test_csv_has_a_row_for_each_function_of_each_process(tmp_path: Path) -> None:
    lines = list(csv.lines(report_of(read_report(open_session(pipeline().write(tmp_path))))))
    assert [line.split(",")[:7] for line in lines][1:] == [
        ["Rollout 101", "rollout", "10", "0", "0.28", "0.0", "0.24"],
        ["Train 102", "train", "10", "0", "1.0", "0.06", "0.94"],
    ]


def test_a_log_alone_has_no_lineage_and_says_what_it_lacks(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("\n".join(lines_of_call()))
    report = report_of(read_report(open_session(log)))
    assert [section.key for section in report.sections] == ["functions"]


def test_where_nothing_was_recorded_there_is_nothing_to_judge(tmp_path: Path) -> None:
    assert "nothing to judge: no call or operation was recorded" in text.render(
        report_of(read_report(open_session(Job().write(tmp_path))))
    )
