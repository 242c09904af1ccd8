"""CONTRIBUTING.md, adding a finding: done as the page shows it, to a copy of the package."""

from __future__ import annotations

import json

import pytest

from tests.conftest import REPO
from tests.package_copy import PackageCopy, Paragraph

pytestmark = pytest.mark.long

FINDING = Paragraph("a finding")
(RULE,) = FINDING.code
FOLDER = FINDING.word(r"in the file of `([\w/]+)/`")
FILE = FINDING.word(r"single steps here: `(\w+\.py)`")
RUN = REPO / "tests/golden/perf_records.jsonl"
TITLE = "The monitor takes "


def test_the_new_finding_is_in_every_report(package_copy: PackageCopy) -> None:
    package_copy.append(f"{FOLDER}/{FILE}", RULE)

    def report(form: str) -> str:
        return package_copy.command("report", RUN, "--format", form)

    found = {finding["name"]: finding for finding in json.loads(report("json"))["findings"]}
    new = found["monitor_cost"]
    assert new["title"].startswith(TITLE)
    assert new["evidence"][0]["limit"] == 0.0001
    assert new["gain"] == pytest.approx(new["evidence"][0]["value"] / (1 - new["evidence"][0]["value"]))
    for form in ("text", "markdown", "html"):
        page = report(form)
        assert TITLE in page
        assert "phases are switched off sooner" in page


def test_without_the_change_there_is_none() -> None:
    assert TITLE not in (REPO / "tests/golden/report.txt").read_text(encoding="utf-8")
