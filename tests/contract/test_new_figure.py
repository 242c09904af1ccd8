"""CONTRIBUTING.md, adding a metric: done as the page shows it, to a copy of the package."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

REPO = Path(__file__).parents[2]
PAGE = (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("**a metric**") : PAGE.index("**a finding**")]
ROW = re.search(r"```python\n(.*?)```", SECTION, re.DOTALL)[1]
FILE = re.search(r"one row in `([\w/.]+)`", SECTION)[1]
GROUP = re.search(r"at the end of `(\w+)`", SECTION)[1]
RUN = REPO / "tests/golden/perf_records.jsonl"  # 10240 tokens/s on 8 devices
KEY, VALUE = "tokens_per_s_per_gpu", 1280.0

SHOW = """
import sys
from dataclasses import replace
from pathlib import Path
from flagscale_perf.analysis.run_file import RunFile
from flagscale_perf.sinks.base import SinkContext
from flagscale_perf.sinks.registry import SINKS
from flagscale_perf.training.presentation import PRESENTATION
run, logs = RunFile(Path(sys.argv[1])), Path(sys.argv[2])
options = {"perf_csv": True, "perf_wandb": True, "perf_prometheus_textfile": str(logs / "x.prom")}
header = replace(run.header, config=run.header.config | options)
sinks = [kind.open(SinkContext(header, logs, print, PRESENTATION, emit_figures=print)) for kind in SINKS]
for sink in filter(None, sinks):
    for record in run:
        sink.write(record)
    sink.flush()
    sink.close()
"""


@pytest.fixture
def python(run_python, tmp_path):
    """Runs Python with a copy of the package that has the row."""
    copy = tmp_path / "copy"
    shutil.copytree(
        REPO / "flagscale_perf", copy / "flagscale_perf", ignore=shutil.ignore_patterns("__pycache__")
    )
    path = copy / FILE
    text = path.read_text(encoding="utf-8")
    end = text.index(")  # fmt: skip", text.index(f"\n{GROUP}: "))
    path.write_text(text[:end] + ROW + text[end:], encoding="utf-8")

    def run(*args: object) -> str:
        path = f"{copy}:{REPO}"
        done = run_python(*args, env={"PYTHONPATH": path})
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_new_figure_is_in_every_output_of_a_run(python, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    sent = python("-c", SHOW, RUN, logs)

    log = (logs / "perf_metrics_20240129_103000.log").read_text().splitlines()
    titles = next(line for line in log if line.startswith("Timestamp"))
    place = titles.index("Tokens/s/GPU")
    first = next(line for line in log if line.startswith("2024"))
    assert first[place : place + 14].strip() == "1280"

    (row, *_) = csv.DictReader((logs / "perf_intervals_20240129_103000.csv").open())
    assert float(row[KEY]) == VALUE

    (events,) = logs.glob("tensorboard/*")
    _, layout, point, *_ = LegacyEventFileLoader(str(events)).Load()
    tag = "performance/tokens_per_second_per_gpu"
    assert {each.tag: each.simple_value for each in point.summary.value}[tag] == VALUE
    assert tag.encode() in layout.SerializeToString()
    assert f"'flagscale_perf/{tag}': {VALUE}" in sent  # W&B

    assert f"flagscale_perf_device_tokens_per_second {VALUE}\n" in (logs / "x.prom").read_text()
    summary = json.loads((logs / "perf_summary_20240129_103000.json").read_text())
    assert summary["iteration_logs"][0][KEY] == VALUE


def test_and_in_what_is_made_of_its_run_file(python) -> None:
    def main(*args: str) -> str:
        return python("-m", "flagscale_perf", *args)

    (row, *_) = csv.DictReader(io.StringIO(main("report", RUN, "--format", "csv")))
    assert float(row[KEY]) == VALUE
    assert f'"{KEY}": {VALUE}' in main("report", RUN, "--format", "json")
    assert "tokens/s/GPU" in main("watch", "--once", RUN)
    show = "from tests.contract.test_figures_page import table; print(table())"
    assert f"| `{KEY}` | tokens/s | tokens_per_s / world size | Tokens/s/GPU |" in python("-c", show)


def test_without_the_row_there_is_none() -> None:
    assert KEY not in (REPO / FILE).read_text(encoding="utf-8")
