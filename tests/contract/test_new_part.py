"""A new part of a profiled step costs its name, its field, and the place that measures it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.package_copy import PackageCopy
from tests.profile_runs import make_profile

pytestmark = pytest.mark.long

RECORDS, ROWS = "flagscale_perf/profile/records.py", "flagscale_perf/profile/rows.py"
# One step of 100 ms, of it 60 in operators and 30 in the new part.
WRITE = """
import sys
from pathlib import Path
from tests.profile_runs import FORWARD, MATMUL, MS, Profiled
from flagscale_perf.profile.records import Sort
job = Profiled()
process = job.rank(0, 1)
job.step(process, 0, 100, 60, 0, 10, 0, 0, 0, loading_ns=30 * MS)
job.row(process, (FORWARD, "model", Sort.OPERATOR, MATMUL, 1, 60, None, None), steps=1)
job.window(process, steps=1, clean_steps=0)
print(job.write(Path(sys.argv[1])))
"""
MEASURE = """
from tests.unit.profile.test_rows import made, one_step
print(made(one_step()).parts_ns["loading"])
"""


@pytest.fixture
def changed(package_copy: PackageCopy) -> PackageCopy:
    package_copy.insert(RECORDS, '"loading", ', '"host"', "PARTS = (")
    package_copy.insert(RECORDS, "    loading_ns: int | None\n", "    host_ns: int", "class StepRecord(")
    package_copy.insert(ROWS, '            "loading": 7,\n', '            "host":', "parts_ns={")
    return package_copy


def test_it_is_measured_and_in_every_report(changed: PackageCopy, tmp_path: Path) -> None:
    assert changed.python("-c", MEASURE) == "7\n"
    path = changed.python("-c", WRITE, tmp_path).strip()
    books = json.loads(changed.command("report", path, "--format", "json"))["steps"]["train"]["books"]
    assert (books["loading"], books["operators"], books["coverage"]) == (30e6, 60e6, 1.0)
    shown = changed.command("report", path, "--full")
    head = next(line.split() for line in shown.splitlines() if "communication" in line and "engine" in line)
    row = next(line.split() for line in shown.splitlines() if line.strip().startswith("rank 0 "))
    assert "loading" in head and "30.000" in row
    changed.command("trace-export", path, "-o", tmp_path / "trace.json")
    assert '"loading_ms": 30.0' in (tmp_path / "trace.json").read_text()


def test_a_run_file_from_before_is_read(changed: PackageCopy, tmp_path: Path) -> None:
    report = json.loads(changed.command("report", make_profile().write(tmp_path), "--format", "json"))
    assert report["steps"]["train"]["books"]["loading"] == 0
