"""CONTRIBUTING.md, adding a record type: done as the page shows it, to a copy of the package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import REPO
from tests.package_copy import PackageCopy, Paragraph

pytestmark = pytest.mark.long

RECORD = Paragraph("a record type")
(CODE,) = RECORD.code
FILE = RECORD.word(r"with this in `([\w/.]+)`")
CLASS, PIPELINE = RECORD.word(r"`(\w+)` at the end of\s`joined`"), RECORD.word(r"`joined` in `([\w/.]+)`")

# Of the ring and the codec alone, then of a session's files.
GO_THROUGH = """
import sys
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.perf_logger import PerfLogger
from flagscale_perf.spine.clock import Anchor, monotonic_ns
from flagscale_perf.store.decoder import decode
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.ring import Ring
from flagscale_perf.training.records import GarbageRecord
from tests.fakes import make_facts, make_step
MS = 1_000_000
ring = Ring.create()
made = [GarbageRecord(1, 2, 0, 4), GarbageRecord(5, 6, 2, None)]
for record in made:
    ring.put(record)
assert ring.take(9) == made, "the ring"
ring.release()
assert [decode(encode(record)) for record in made] == made, "the codec"
config = PerfConfig(enable_perf_monitor=True, perf_log_dir=sys.argv[1])
logger = PerfLogger.start(config, make_facts(), print)
now_ns = monotonic_ns()
for iteration in range(1, 11):
    start_ns = now_ns + iteration * 100 * MS
    logger.put(GarbageRecord(start_ns, 3 * MS, 2, 40 + iteration))
    logger.step(make_step(iteration, start_ns=start_ns))
assert logger.close("completed", 60)
print(now_ns)
"""


@pytest.fixture
def changed(package_copy: PackageCopy) -> PackageCopy:
    """A copy of the package that has the page's record type."""
    package_copy.insert(FILE, f"{CODE}\n\n", '@record("standstill"')
    package_copy.insert(PIPELINE, f", {CLASS}", ")\n", "joined: ")
    package_copy.insert(PIPELINE, f"    {CLASS},\n", "    HardwareRecord,\n")
    return package_copy


def test_it_goes_from_the_training_thread_to_the_run_file_and_the_timeline(
    changed: PackageCopy, tmp_path: Path
) -> None:
    logs, trace = tmp_path / "logs", tmp_path / "trace.json"
    now_ns = int(changed.python("-c", GO_THROUGH, logs))
    (run,) = logs.glob("perf_records_*.jsonl")
    lines = [json.loads(line) for line in run.read_text().splitlines()]
    found = [line for line in lines if line["kind"] == "garbage"]
    assert [(line["start_ns"], line["collect_ns"], line["generation"], line["freed"]) for line in found] == [
        (now_ns + iteration * 10**8, 3 * 10**6, 2, 40 + iteration) for iteration in range(1, 11)
    ]

    changed.command("trace-export", run, "-o", trace)
    events = json.loads(trace.read_text())["traceEvents"]
    (track,) = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["args"] == {"name": "garbage"}}
    drawn = [event for event in events if event["ph"] == "X" and event["name"] == "garbage"]
    assert [(event["pid"], event["tid"], event["dur"], event["args"]) for event in drawn] == [
        (*track, 3000, {"generation": 2, "freed": 40 + iteration}) for iteration in range(1, 11)
    ]

    report = json.loads(changed.command("report", run, "--format", "json"))
    assert (report["reading"]["records"]["garbage"], report["reading"]["skipped"]) == (10, 0)
    assert report["overview"]["last_iteration"] == 10


def test_without_the_change_there_is_none() -> None:
    assert CLASS not in (REPO / FILE).read_text(encoding="utf-8")
