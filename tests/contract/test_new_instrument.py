"""An instrument is a folder: a toy one is added to a copy of the package, used and deleted again."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

from tests.contract import house_rules as rules

REPO = Path(__file__).parents[2]
TOY = Path(__file__).parent / "toy_instrument"
ROW = "| `toy` | `spine`, `arguments`, `sinks`, `writer`, `analysis` | | 250 |\n"
RECORD = """
import sys
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.toy.recording import start
from flagscale_perf.toy.records import CallRecord
directory = sys.argv[1]
recorder = start(directory, perf_csv=True, perf_prometheus_textfile=directory + "/toy.prom")
begin_ns = monotonic_ns()
for number in range(1, 26):
    recorder.put(CallRecord(number, begin_ns + number * 1_000_000, 500_000, 10**9))
print(recorder.close("completed", 60))
"""
TRACKED = dict(rules.read_texts(REPO))


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """What is tracked of the repository, and the toy in it."""
    root = tmp_path_factory.mktemp("copy")
    for name, text in TRACKED.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    shutil.copytree(TOY, root / "flagscale_perf/toy", ignore=shutil.ignore_patterns("__pycache__"))
    change(root / "docs/house.md", r"(?m)^\| `cli` \|", lambda found: ROW + found)
    return root


def change(path: Path, pattern: str, made) -> None:
    text, count = re.subn(pattern, lambda match: made(match[0]), path.read_text(encoding="utf-8"), count=1)
    assert count == 1, f"{path.name} has no {pattern}"
    path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def logs(copy, tmp_path_factory) -> Path:
    """What a session of the toy has written."""
    directory = tmp_path_factory.mktemp("logs")
    done = in_copy(copy, "-c", RECORD, directory)
    assert (done.returncode, done.stderr) == (0, "")
    assert Path(done.stdout.strip()).read_text() == '{"calls": 25}'
    return directory


def in_copy(copy: Path, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, words)]
    environment = os.environ | {"PYTHONPATH": str(copy)}
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=300)


def shown(copy: Path, *words: object) -> str:
    done = in_copy(copy, "-m", "flagscale_perf", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def records_in(logs: Path) -> list[dict]:
    (run_file,) = logs.glob("perf_records_*.jsonl")
    return [json.loads(line) for line in run_file.read_text().splitlines()]


def test_its_records_are_in_a_run_file_of_its_own(logs) -> None:
    header, *records = records_in(logs)
    kinds = [record["kind"] for record in records]
    assert (header["instrument"], kinds.count("toy_call"), kinds.count("toy_calls")) == ("toy", 25, 3)
    assert (kinds[-1], records[-1]["reason"], records[-1]["last_iteration"]) == ("end", "completed", 25)


def test_its_figures_are_in_every_file_of_the_session(logs) -> None:
    text = next(logs.glob("perf_metrics_*.log")).read_text()
    assert "Toy Session Started" in text
    rows = [line.split()[2:] for line in text.splitlines() if line.startswith("20")]
    assert rows == [["10", "0.500"], ["10", "0.500"], ["5", "0.500"]]
    table = list(csv.DictReader(next(logs.glob("perf_intervals_*.csv")).open()))
    assert [(row["calls"], row["call_ms"], row["sent_gb"]) for row in table] == [
        ("10", "0.5", "10.0"),
        ("10", "0.5", "10.0"),
        ("5", "0.5", "5.0"),
    ]
    (events,) = logs.glob("tensorboard/*")
    points = [each for event in LegacyEventFileLoader(str(events)).Load() for each in event.summary.value]
    assert [point.simple_value for point in points if point.tag == "toy/call_ms"] == [0.5] * 3
    series = re.findall(
        r"^flagscale_perf_toy_call_seconds\{.*\} (.*)$", (logs / "toy.prom").read_text(), re.M
    )
    assert series == ["0.0005"]


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_its_report_is_rendered(copy, logs, form) -> None:
    page = shown(copy, "report", logs, "--format", form)
    assert "Toy run" in page and "mean call" in page and "0.500" in page


def test_its_report_is_there_for_programs(copy, logs) -> None:
    rows = json.loads(shown(copy, "report", logs, "--format", "json"))["calls"]
    assert rows[-1] == {"calls": 5, "call_ms": 0.5, "sent_gb": 5.0}
    lines = csv.DictReader(io.StringIO(shown(copy, "report", logs, "--format", "csv")))
    assert [row["calls"] for row in lines] == ["10", "10", "5"]


def test_its_records_are_on_the_time_axis(copy, logs) -> None:
    events = json.loads(shown(copy, "trace-export", logs, "-o", "-"))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {(span["name"], span["dur"]) for span in spans} == {("toy_call", 500)}
    assert [span["args"]["number"] for span in spans] == list(range(1, 26))


def test_what_it_does_not_offer_is_refused(copy, logs) -> None:
    done = in_copy(copy, "-m", "flagscale_perf", "watch", "--once", logs)
    assert (done.returncode, done.stdout) == (2, "")
    assert "has nothing for this command" in done.stderr


def test_it_keeps_to_the_table_of_imports(copy) -> None:
    house = rules.read_house((copy / "docs/house.md").read_text())
    sources = rules.read_sources(copy, "flagscale_perf/toy/")
    assert len(sources) > 3
    assert rules.check_imports(sources, house) == []


def test_it_can_be_deleted(copy, logs) -> None:
    """The last test of this file: the folder and its row go. What is left is this repository, with
    all that its tests hold, and without a trace of the toy.
    """
    shutil.rmtree(copy / "flagscale_perf/toy")
    change(copy / "docs/house.md", re.escape(ROW), lambda found: "")
    assert {name: (copy / name).read_text(encoding="utf-8") for name in TRACKED} == TRACKED
    golden = copy / "perf_records_20240129_103000.jsonl"
    shutil.copy(REPO / "tests/golden/perf_records.jsonl", golden)
    report = shown(copy, "report", golden, "--full")
    assert report == (REPO / "tests/golden/report.txt").read_text(encoding="utf-8")
    done = in_copy(copy, "-m", "flagscale_perf", "report", logs)
    assert done.returncode == 2
    assert "the instrument 'toy' is not known; this version has bench" in done.stderr
