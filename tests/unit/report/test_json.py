"""The report as JSON: strict, all of it, and the summary's figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.report.json import render
from flagscale_perf.training.analysis.fold import read_summary
from tests import every_instrument
from tests.fakes import make_header, make_step, sample_run
from tests.golden import golden
from tests.unit.report.test_text import NAME, report_of

KEYS = {
    "rpc": "session state file_remarks facts methods_recorded overall methods slowest largest layer"
    " missing_calls wall_ns findings not_judged events skipped_lines first_skipped",
    "trace": "title state file_remarks traces calls functions processes operations waits rl lineage unended"
    " losses wall_ns thresholds findings not_judged events complete_files",
    "profile": "state file_remarks base unit versions machines ranks steps roofs communication verdicts"
    " metrics findings not_judged events records_lost",
}


def refuse(constant: str) -> None:
    raise AssertionError(constant)


def parsed(text: str) -> dict[str, Any]:
    return dict(json.loads(text, parse_constant=refuse))


def test_a_whole_run(tmp_path: Path) -> None:
    assert render(report_of(tmp_path, sample_run())).replace(str(tmp_path / NAME), "RUN_FILE") == golden(
        "report.json"
    )


@pytest.mark.parametrize("name", KEYS)
def test_a_session_of_every_other_instrument(tmp_path: Path, name: str) -> None:
    path = every_instrument.write(name, tmp_path, "completed")
    made = parsed(render(every_instrument.report_of(name, path)))
    assert list(made) == ["report_version", "path", *KEYS[name].split()]
    assert (made["path"], made["state"]) == (str(path), "completed")


def test_a_session_of_measurements(tmp_path: Path) -> None:
    path = every_instrument.write("bench", tmp_path, "completed")
    made = render(every_instrument.report_of("bench", path)).replace(str(path), "RUN_FILE")
    assert made == golden("report_bench.json")


def test_its_figures_are_the_summary_s(tmp_path: Path) -> None:
    report = parsed(render(report_of(tmp_path, sample_run())))
    summary = read_summary(open_session(tmp_path / NAME)).as_dict()
    statistics = summary["final_statistics"]
    figures = report["figures"]
    names = {
        "avg_tflops_per_gpu": "tflops_per_gpu",
        "avg_mfu": "mfu",
        "avg_throughput_tokens": "tokens_per_s",
        "p95_iteration_ms": "p95_ms",
    }
    assert {name: statistics[name] for name in names} == {name: figures[ours] for name, ours in names.items()}
    rows = [
        (row["iteration"], row["TFLOPS_per_GPU"], row["mfu"], row["iteration_time_ms"])
        for row in summary["iteration_logs"]
    ]
    assert rows == [
        (point["iteration"], point["tflops_per_gpu"], point["mfu"], point["iteration_ms"])
        for point in report["trend"]["points"]
    ]
    parts = {part["name"]: part["dur_s"] for part in report["goodput"]["parts"]}
    assert parts == {
        name.removesuffix("_s"): dur_s
        for name, dur_s in summary["goodput"].items()
        if name not in ("wall_s", "ettr")
    }


def test_what_could_not_be_read_is_in_it(tmp_path: Path) -> None:
    reading = parsed(render(report_of(tmp_path, [make_header(), make_step(1)], b"x\n{")))["reading"]
    assert reading == {
        "path": str(tmp_path / NAME),
        "records": {"header": 1, "step": 1},
        "skipped": 2,
        "first_skipped": [
            {"number": 3, "reason": "JSON is malformed: invalid character (byte 0)"},
            {"number": 4, "reason": "cut off"},
        ],
        "remarks": [],
    }


def test_an_escape_stays_an_escape(tmp_path: Path) -> None:
    text = render(report_of(tmp_path, [make_header(), make_step(1)], b'{"kind":"\\u001b[2J\xc2\x9b"}\n'))
    assert text.isascii() and all(char == "\n" or char.isprintable() for char in text)
