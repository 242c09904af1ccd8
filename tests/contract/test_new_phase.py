"""CONTRIBUTING.md, adding a phase: done as the page shows it, to a copy of the package."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.conftest import REPO
from tests.package_copy import PackageCopy, Paragraph
from tests.run_files import steady, write

pytestmark = pytest.mark.long

PHASE = Paragraph("a phase")
(ROW,) = PHASE.code
TABLE = PHASE.word(r"`TABLE` in `([\w/.]+)`")
RECORDS = PHASE.word(r"`PhaseRecord` in `([\w/.]+)`")
NEXT = PHASE.word(r", above `(\w+)`")
TIMER, FIELD = "loss-compute", "    loss_ns: int | None\n"

# Steps of 100 ms: 20 ms forward and in it 5 ms loss, 40 ms backward.
RECORD = """
import sys
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.perf_logger import PerfLogger
from flagscale_perf.training.marks import STARTS, STOPS, in_slots
from flagscale_perf.training.phases import NUMBER_OF
from tests.fakes import make_facts, make_step
MS = 1_000_000
config = PerfConfig(enable_perf_monitor=True, perf_log_dir=sys.argv[1], perf_breakdown=True, perf_csv=True)
logger = PerfLogger.start(config, make_facts(), print)
forward, loss, backward = map(NUMBER_OF.get, ("forward-compute", "loss-compute", "backward-compute"))
named = [(0, STARTS[forward]), (10, STARTS[loss]), (15, STOPS[loss]), (20, STOPS[forward]),
         (20, STARTS[backward]), (60, STOPS[backward])]
for iteration in range(1, 21):
    step = make_step(iteration, warmup=int(iteration == 1))
    for slot in in_slots(iteration, [step.start_ns + at * MS + mark for at, mark in named]):
        logger.put(slot)
    logger.step(step)
assert logger.close("completed", 60)
"""

WORK = """
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.ranks.blocks import BlockBuilder
times = {"forward": 15, "loss": 5, "other": 30}
from flagscale_perf.training.phases import StepPhases
from flagscale_perf.training.records import PhaseRecord
from tests.fakes import make_step
builder = BlockBuilder(0)
builder.add(make_step(5), StepPhases(PhaseRecord(5, *map(times.get, PHASES)), None, None))
block = builder.close()
print([block.work_ns], [block.wait_ns], [block.data_ns])
"""


@pytest.fixture
def changed(package_copy: PackageCopy) -> PackageCopy:
    """A copy of the package that has the page's phase."""
    package_copy.insert(TABLE, ROW, f'    "{NEXT}": Phase(')
    package_copy.insert(RECORDS, FIELD, f"    {NEXT}_ns: int", "class PhaseRecord(")
    return package_copy


def test_its_time_is_in_every_output_of_a_run(changed: PackageCopy, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    assert changed.python("-c", RECORD, logs) == ""
    (run,) = logs.glob("perf_records_*.jsonl")
    lines = [json.loads(line) for line in run.read_text().splitlines()]
    phases = [line for line in lines if line["kind"] == "phases"]
    assert len(phases) == 20
    assert (phases[0]["loss_ns"], phases[0]["forward_ns"]) == (5_000_000, 15_000_000), "its own, not twice"

    (path,) = logs.glob("perf_intervals_*.csv")
    rows = list(csv.DictReader(path.open()))
    assert (rows[0]["loss_ms"], rows[0]["forward_ms"]) == ("5.0", "15.0")
    points = EventAccumulator(str(logs / "tensorboard")).Reload().Scalars("phase/loss_ms")
    assert [point.value for point in points] == [float(row["loss_ms"]) for row in rows], "none of them purged"
    (log,) = logs.glob("perf_metrics_*.log")
    titles = next(line for line in log.read_text().splitlines() if line.startswith("Timestamp"))
    first = next(line for line in log.read_text().splitlines() if line.startswith("20"))
    assert first[titles.index("Fwd%") :].split()[0] == "20.0", "its group: 15 ms and 5 of 100"
    (path,) = logs.glob("perf_summary_*.json")
    summary = json.loads(path.read_text())["phases"]
    assert (summary["total_s"]["loss"], summary["share"]["loss"]) == (0.095, 0.05), "19 of 20 steps"

    report = json.loads(changed.command("report", run, "--format", "json"))
    rows = {row["name"]: row for row in report["phases"]["rows"]}
    assert (rows["loss"]["step_ms"], rows["loss"]["share"]) == (5, 0.05)
    assert "  loss              5.0 ms   5.0 %  0.0950 s\n" in changed.command("report", run, "--full")
    trace = tmp_path / "trace.json"
    changed.command("trace-export", run, "-o", trace)
    drawn = [event for event in json.loads(trace.read_text())["traceEvents"] if event["name"] == "loss"]
    assert [event["dur"] for event in drawn] == [5000] * 20


def test_it_is_in_the_ranks_work(changed: PackageCopy) -> None:
    assert changed.python("-c", WORK) == "[50] [0] [None]\n"


def test_a_run_file_from_before_is_read(changed: PackageCopy, tmp_path: Path) -> None:
    before = write(tmp_path / "perf_records_20240129_103000.jsonl", steady(25))
    report = json.loads(changed.command("report", before, "--format", "json"))
    rows = {row["name"]: row["step_ms"] for row in report["phases"]["rows"]}
    assert (report["reading"]["skipped"], rows["loss"], rows["forward"]) == (0, None, 18.0)


def test_without_the_change_there_is_none() -> None:
    assert TIMER not in (REPO / TABLE).read_text(encoding="utf-8")
