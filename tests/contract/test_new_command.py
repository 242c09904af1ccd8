"""CONTRIBUTING.md, adding a command: done as the page shows it, to a copy of the package."""

from __future__ import annotations

import json

import pytest

from tests.conftest import REPO
from tests.package_copy import PackageCopy, Paragraph

COMMAND = Paragraph("a command")
(CODE,) = COMMAND.code
FILE = COMMAND.word(r"with this as `([\w/.]+)`")
TABLE = COMMAND.word(r"`COMMANDS` in\s`([\w/.]+)`")
CONTRACT = COMMAND.word(r"`([\w/.]+)` then covers it")
RUN = REPO / "tests/golden/perf_records.jsonl"
HELP = "print what a run file says about its run"


@pytest.fixture
def changed(package_copy: PackageCopy) -> PackageCopy:
    """A copy of the package that has the page's command."""
    package_copy.create(FILE, CODE)
    package_copy.insert(TABLE, f'    "facts": "{HELP}",\n', "}\n", "COMMANDS = {")
    return package_copy


def test_it_is_listed_and_runs(changed: PackageCopy) -> None:
    assert f"  facts         {HELP}\n" in changed.command("--help")
    assert changed.command("facts", "--help").startswith("usage: flagscale-perf facts [-h] RUN_DIR_OR_FILE\n")
    facts = json.loads(changed.command("facts", RUN))
    assert (facts["world_size"], facts["device"]) == (8, "NVIDIA H200")


def test_the_contract_of_all_commands_runs_over_it(changed: PackageCopy) -> None:
    of_each = (REPO / CONTRACT).read_text(encoding="utf-8").count("(self, name")
    assert changed.contract(CONTRACT, "facts").count("[facts] PASSED") == of_each > 0


def test_without_the_change_there_is_none() -> None:
    assert HELP not in (REPO / TABLE).read_text(encoding="utf-8")
