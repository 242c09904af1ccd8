"""Experiments as a report."""

from __future__ import annotations

import json
from pathlib import Path

from flagscale_perf.analysis.job import open_session
from flagscale_perf.bench.analysis.instrument import INSTRUMENT
from flagscale_perf.bench.analysis.report import read_report, report_of
from flagscale_perf.report import csv, text
from flagscale_perf.report import json as as_json
from tests.bench_runs import GB, book_in, collective, local


def test_what_was_measured_and_what_was_not(tmp_path: Path) -> None:
    with book_in(tmp_path) as book:
        with book.part("bandwidth", 3, {"said": ["quick"]}) as part:
            collective(part, "all_reduce", GB, [0.5, 0.25, 0.5])
            local(part, "copy", 0, [0.5])
            part.value("time", "s", {"op": "host to device"}, None, "no GPU")
        with book.part("latency", None, {"model": "qwen3"}):
            pass
        with book.part("sonar", None, {"model": "of another version"}) as part:
            local(part, "ping", 0, [2.0])
    report = report_of(read_report(open_session(book.path)))
    assert report.subject == "bandwidth (2 of 3 points), latency (0 points), qwen3, vllm on node"
    shown = text.render(report)
    (line,) = [line.split() for line in shown.splitlines() if "all_reduce" in line]
    assert line[:5] == ["all_reduce", "1,000,000,000", "500,000.0", "500,000.0", "2.000"]
    assert "ping" not in shown and "host to device  no GPU" in shown
    lines = list(csv.lines(report))
    assert lines[0] == "experiment,figure,unit,case,median,min,p95,repetitions,why\n"
    assert lines[2].startswith('bandwidth,time,s,"copy, rank 0,')
    content = json.loads(as_json.render(report))
    assert list(content["experiments"]) == ["bandwidth", "latency"]
    point = content["experiments"]["bandwidth"]["points"][0]
    wanted = {"op": "all_reduce", "median": 0.5, "low": 0.25, "p95": 0.5, "repetitions": 3}
    assert wanted.items() <= point.items()
    assert content["experiments"]["bandwidth"]["verdicts"][2]["value"] == 4.0


def test_a_run_without_a_point_complains(tmp_path: Path) -> None:
    with book_in(tmp_path) as book:
        pass
    report = INSTRUMENT.report(open_session(book.path))
    assert report.complaint == f"{book.path}: no experiment has measured anything"
