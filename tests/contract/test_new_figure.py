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
from flagscale_perf.training.summary.presentation import PRESENTATION
run, logs = RunFile(Path(sys.argv[1])), Path(sys.argv[2])
options = {"perf_csv": True, "perf_wandb": True, "perf_prometheus_textfile": str(logs / "x.prom")}
header = replace(run.header, config=run.header.config | options)
context = SinkContext(header, logs, print, PRESENTATION, emit_figures=print)
sinks = [kind.open(context) for kind in SINKS]
for sink in filter(None, sinks):
    for record in run:
        sink.write(record)
    sink.flush()
    sink.close()
"""


MEASURE = """
from flagscale_perf.device.probe import NoDevice
from flagscale_perf.perf_metrics import PerfMonitor
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.figures import Rows
from flagscale_perf.spine.jsonl import decode, encode
from flagscale_perf.spine.ring import Ring
from flagscale_perf.training.figures import TABLE
from flagscale_perf.training.recording.loop import StepNumbers
from flagscale_perf.training.utilisation import Scale
from flagscale_perf.training.window import IntervalWindow
from tests.fakes import make_header
ring = Ring.create()
monitor = PerfMonitor(ring.put, lambda samples, packed: (4, 5), NoDevice(""), 0, 0)
for number in range(3):
    monitor.step_start(number * 1000, number, number * 8)
    monitor.step_end(number * 1000 + 500, StepNumbers(number + 1, True, 8, 1024, 1))
monitor.finish(3000)
steps = ring.take(9)
ring.release()
assert [decode(encode(step)) for step in steps] == steps, "the codec"
window = IntervalWindow(10, Anchor(0, 0), Scale(1, None))
for step in steps:
    window.add(step)
print(len(steps), Rows(TABLE, make_header()).csv(window.close())["gc_ms"])
"""


class Copy:
    """A copy of the package to be changed."""

    def __init__(self, directory: Path, run_python) -> None:
        self._directory = directory
        self._run_python = run_python
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPO / "flagscale_perf", directory / "flagscale_perf", ignore=ignored)

    def insert(self, file: str, text: str, before: str, behind: str) -> None:
        """The text before the first `before` that follows `behind`."""
        path = self._directory / file
        content = path.read_text(encoding="utf-8")
        place = content.index(before, content.index(behind))
        path.write_text(content[:place] + text + content[place:], encoding="utf-8")

    def insert_row(self, row: str) -> None:
        self.insert(FILE, row, ")  # fmt: skip", f"\n{GROUP}: ")

    def python(self, *args: object) -> str:
        done = self._run_python(*args, env={"PYTHONPATH": f"{self._directory}:{REPO}"})
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def copy(run_python, tmp_path: Path) -> Copy:
    return Copy(tmp_path / "copy", run_python)


@pytest.fixture
def python(copy: Copy):
    """Runs Python with a copy of the package that has the page's row."""
    copy.insert_row(ROW)
    return copy.python


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


def test_a_newly_measured_one_goes_the_whole_way_from_the_training_thread(copy: Copy) -> None:
    (field,) = set(re.findall(r"`(gc_ns: [^`]+)`", SECTION))
    (value,) = re.findall(r"`(per_step\([^`]+)`", SECTION)
    row = f'    Row("gc_ms", "garbage", MILLISECONDS, lambda i, run: {value}, "Σ gc_ns / steps / 10⁶"),\n'
    records = "flagscale_perf/training/records.py"
    for record in ("class StepRecord(", "class IntervalRecord:"):
        copy.insert(records, f"\n    {field}", "\n\n\n", record)
    copy.insert(
        "flagscale_perf/perf_metrics.py", "2_000_000,\n", "            ),\n        )", "StepRecord,\n"
    )
    copy.insert_row(row)
    assert copy.python("-c", MEASURE) == "3 2.0\n"


def test_without_the_row_there_is_none() -> None:
    assert KEY not in (REPO / FILE).read_text(encoding="utf-8")
