"""CONTRIBUTING.md, adding a metric: done as the page shows it, to a copy of the package."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.conftest import REPO
from tests.package_copy import PackageCopy, Paragraph

pytestmark = pytest.mark.long

METRIC = Paragraph("a metric")
(ROW,) = METRIC.code
FILE = METRIC.word(r"one row in `([\w/.]+)`")
GROUP = METRIC.word(r"at the end of `(_\w+)`")
RUN = REPO / "tests/golden/perf_records.jsonl"  # 10240 tokens/s on 8 devices
KEY, VALUE = "tokens_per_s_per_gpu", 1280.0

SHOW = """
import sys
from dataclasses import replace
from pathlib import Path
from flagscale_perf.store.run_file import RunFile
from flagscale_perf.sinks.base import SinkContext
from flagscale_perf.sinks.registry import SINKS
from flagscale_perf.training.summary.presentation import PRESENTATION
run, logs = RunFile(Path(sys.argv[1])), Path(sys.argv[2])
options = {"perf_columns": "tokens_per_s,tokens_per_s_per_gpu"}
options |= {"perf_csv": True, "perf_wandb": True, "perf_prometheus_textfile": str(logs / "x.prom")}
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
from flagscale_perf.perf_metrics import StepMeter
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.figures import Rows
from flagscale_perf.store.decoder import decode
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.ring import Ring
from flagscale_perf.training.figures import TABLE
from flagscale_perf.training.recording.loop import StepNumbers
from flagscale_perf.training.utilisation import Scale
from flagscale_perf.training.window import IntervalWindow
from tests.fakes import make_header
ring = Ring.create()
monitor = StepMeter(ring.put, lambda samples, packed: (4, 5), NoDevice(""), 0, 0)
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


def insert_row(package_copy: PackageCopy, row: str) -> None:
    package_copy.insert(FILE, row, ")  # fmt: skip", f"\n{GROUP}: ")


@pytest.fixture
def changed(package_copy: PackageCopy) -> PackageCopy:
    """A copy of the package that has the page's row."""
    insert_row(package_copy, ROW)
    return package_copy


def test_the_new_figure_is_in_every_output_of_a_run(changed: PackageCopy, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    sent = changed.python("-c", SHOW, RUN, logs)

    log = (logs / "perf_metrics_20240129_103000.log").read_text().splitlines()
    titles = next(line for line in log if line.startswith("Timestamp"))
    first = next(line for line in log if line.startswith("2024"))
    assert first[titles.index(KEY) :].split()[0] == "1280"

    rows = list(csv.DictReader((logs / "perf_intervals_20240129_103000.csv").open()))
    assert float(rows[0][KEY]) == VALUE

    events = EventAccumulator(str(logs / "tensorboard")).Reload()
    tag = "performance/tokens_per_second_per_gpu"
    points = events.Scalars(tag)
    assert (points[0].value, len(points)) == (VALUE, len(rows)), "none of them purged"
    assert f"'flagscale_perf/{tag}': {VALUE}" in sent  # W&B

    series = re.findall(
        r"^flagscale_perf_device_tokens_per_second\{.*\} (.*)$", (logs / "x.prom").read_text(), re.M
    )
    assert series == [str(VALUE)]
    summary = json.loads((logs / "perf_summary_20240129_103000.json").read_text())
    assert summary["iteration_logs"][0][KEY] == VALUE


def test_and_in_what_is_made_of_its_run_file(changed: PackageCopy) -> None:
    main = changed.command
    (row, *_) = csv.DictReader(io.StringIO(main("report", RUN, "--format", "csv")))
    assert float(row[KEY]) == VALUE
    assert f'"{KEY}": {VALUE}' in main("report", RUN, "--format", "json")
    assert "tokens/s/GPU" in main("watch", "--once", RUN)
    show = "from tests.pages import figures; print(figures())"
    assert f"| `{KEY}` | tokens/s | tokens_per_s / world size |" in changed.python("-c", show)


def test_a_newly_measured_one_goes_the_whole_way_from_the_training_thread(package_copy: PackageCopy) -> None:
    field, value = METRIC.word(r"`(gc_ns: [^`]+)`"), METRIC.word(r"`(per_step\([^`]+)`")
    row = f'    Row("gc_ms", "garbage", MILLISECONDS, lambda i, run: {value}, "Σ gc_ns / steps / 10⁶"),\n'
    records = "flagscale_perf/training/records.py"
    for record in ("class StepRecord(", "class IntervalRecord:"):
        package_copy.insert(records, f"\n    {field}", "\n\n\n", record)
    package_copy.insert(
        "flagscale_perf/perf_metrics.py", "2_000_000,\n", "            ),\n        )", "StepRecord,\n"
    )
    insert_row(package_copy, row)
    assert package_copy.python("-c", MEASURE) == "3 2.0\n"


def test_without_the_row_there_is_none() -> None:
    assert KEY not in (REPO / FILE).read_text(encoding="utf-8")
