"""CONTRIBUTING.md, adding a sink: done as the page shows it, to a copy of the package."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import REPO
from tests.package_copy import PackageCopy, Paragraph

pytestmark = pytest.mark.long

SINK = Paragraph("a sink")
(CODE,) = SINK.code
FILE = SINK.word(r"with this as `([\w/.]+)`")
REGISTRY = SINK.word(r"imported in\s`([\w/.]+)`")
CONTRACT = SINK.word(r"`([\w/.]+)` then runs over it")
CLASS = "NdjsonSink"

RECORD = """
import sys
from pathlib import Path
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.perf_logger import PerfLogger
from tests.fakes import make_facts, make_step
config = PerfConfig(enable_perf_monitor=True, perf_log_dir=sys.argv[1])
logger = PerfLogger.start(config, make_facts(), print)
for iteration in range(1, 21):
    logger.step(make_step(iteration))
assert logger.close("completed", 60)
"""


@pytest.fixture
def changed(package_copy: PackageCopy) -> PackageCopy:
    """A copy of the package that has the page's sink."""
    package_copy.create(FILE, CODE)
    module = FILE.removesuffix(".py").replace("/", ".")
    package_copy.insert(REGISTRY, f"from {module} import {CLASS}\n", "\n# ")
    package_copy.insert(REGISTRY, f"    {CLASS},\n", ")\nSINKS", "\nVIEWS")
    return package_copy


def test_a_run_s_intervals_are_in_its_file(changed: PackageCopy, tmp_path: Path) -> None:
    assert changed.python("-c", RECORD, tmp_path / "logs") == ""
    (file,) = (tmp_path / "logs").glob("perf_intervals_*.ndjson")
    header, *rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert header["kind"] == "header"
    assert [(row["iteration"], row["tokens_per_s"]) for row in rows] == [(10, 10240), (20, 10240)]


def test_the_contract_of_all_sinks_runs_over_it(changed: PackageCopy) -> None:
    passed = changed.contract(CONTRACT, CLASS)
    of_each = re.findall(r"def test_\w+\(\s*kind: ", (REPO / CONTRACT).read_text(encoding="utf-8"))
    assert passed.count(f"[{CLASS}] PASSED") == len(of_each) > 0


def test_without_the_change_there_is_none() -> None:
    assert CLASS not in (REPO / REGISTRY).read_text(encoding="utf-8")
