"""The trend as CSV."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from flagscale_perf.analysis.job import open_session
from flagscale_perf.report.csv import render
from flagscale_perf.training.analysis import blocks
from flagscale_perf.training.analysis.fold import read_report
from tests.fakes import make_header, make_interval
from tests.golden import golden
from tests.synthetic import TROUBLED, write
from tests.unit.report.test_text import report_of


def test_a_row_for_each_point(tmp_path: Path) -> None:
    lines = render(blocks.report_of(read_report(open_session(write(TROUBLED, tmp_path))))).splitlines(
        keepends=True
    )
    assert len(lines) == 1 + 60
    assert "".join(lines[:12]) == golden("report_phases.csv")


def test_no_text_is_a_formula(tmp_path: Path) -> None:
    texts = ["=cmd|'/c calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", 'a,"b"\n', "power"]
    records = [make_header(), *(make_interval(10 * n, throttle=text) for n, text in enumerate(texts, 1))]
    rows = list(csv.DictReader(io.StringIO(render(report_of(tmp_path, records)))))
    shown = ["'=cmd|'/c calc'!A0", "'+1", "'-1", "'@SUM(A1)", "\\x09=1", 'a,"b"\\x0a', "power"]
    assert [row["throttle"] for row in rows] == shown


def test_a_negative_number_stays_a_number(tmp_path: Path) -> None:
    interval = make_interval(10, phases_ns={"between_steps": -10_000_000})
    (row,) = csv.DictReader(io.StringIO(render(report_of(tmp_path, [make_header(), interval]))))
    assert (row["between_steps_ms"], row["forward_ms"]) == ("-1.0", "")
