"""A new stage of a call costs its row, its field, and the place that measures it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.package_copy import PackageCopy
from tests.rpc_sessions import make_call, write_log, write_run

pytestmark = pytest.mark.long

STAGES, RECORDS = "flagscale_perf/rpc/stages.py", "flagscale_perf/rpc/records.py"
ROW = '    Stage("compress", "purple", "Compress", 15, "making it smaller"),\n'
# Calls of 10 ms: 0.2 ms compressing, of 0.5 ms that are no other stage.
WRITE = """
import sys
from pathlib import Path
from tests.rpc_sessions import US, make_call, write_log, write_run
calls = [make_call(number, compress_ns=200 * US) for number in range(1, 21)]
write_run(Path(sys.argv[1]), calls)
write_log(Path(sys.argv[1]) / "calls.log", calls)
"""


@pytest.fixture
def changed(package_copy: PackageCopy) -> PackageCopy:
    package_copy.insert(STAGES, ROW, "    Stage(", "STAGES = (")
    package_copy.insert(
        RECORDS, "    compress_ns: int | None\n", "    serialize_ns: int", "class CallRecord("
    )
    return package_copy


def test_its_time_is_in_the_log_and_every_report(changed: PackageCopy, tmp_path: Path) -> None:
    assert changed.python("-c", WRITE, tmp_path) == ""
    run = tmp_path / "perf_records_20240129_103000.jsonl"
    for path in (run, tmp_path / "calls.log"):
        stages = _stages(changed, path)
        assert (stages["compress"]["share"], stages["other"]["share"]) == (0.02, 0.03), path
    log = (tmp_path / "calls.log").read_text()
    assert "Compress(ms)" in log and "Stages: compress 2.0 %, serialize 30.0 %" in log
    changed.command("trace-export", run, "-o", tmp_path / "trace.json")
    spans = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["dur"] for event in spans if event["name"] == "compress"] == [200] * 20


def test_files_from_before_are_read(changed: PackageCopy, tmp_path: Path) -> None:
    calls = [make_call(number) for number in range(1, 21)]
    for path in (write_run(tmp_path, calls), write_log(tmp_path / "calls.log", calls)):
        assert _stages(changed, path)["compress"]["share"] is None, path


def _stages(changed: PackageCopy, path: Path) -> dict[str, dict[str, float | None]]:
    return dict(json.loads(changed.command("report", path, "--format", "json"))["overall"]["stages"])
