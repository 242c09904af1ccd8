"""CONTRIBUTING.md, adding a finding: done as the page shows it, to a copy of the package."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
PAGE = (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("**a finding**") : PAGE.index("**a report format**")]
RULE = re.search(r"```python\n(.*?)```", SECTION, re.DOTALL)[1]
FILE = re.search(r"single steps here: `(\w+\.py)`", SECTION)[1]
RUN = REPO / "tests/golden/perf_records.jsonl"
TITLE = "The monitor takes "


@pytest.fixture
def report_of(run_python, tmp_path):
    """Renders the golden run with the copy of the package."""
    copy = tmp_path / "copy"
    shutil.copytree(
        REPO / "flagscale_perf", copy / "flagscale_perf", ignore=shutil.ignore_patterns("__pycache__")
    )
    path = copy / "flagscale_perf/training/analysis/findings" / FILE
    path.write_text(path.read_text(encoding="utf-8") + "\n\n" + RULE, encoding="utf-8")

    def render(form: str) -> str:
        result = run_python(
            "-c",
            f"from flagscale_perf.cli import main; main(['report', {str(RUN)!r}, '--format', {form!r}])",
            env={"PYTHONPATH": str(copy)},
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    return render


def test_the_new_finding_is_in_every_report(report_of) -> None:
    found = {finding["name"]: finding for finding in json.loads(report_of("json"))["findings"]}
    new = found["monitor_cost"]
    assert new["title"].startswith(TITLE)
    assert new["evidence"][0]["limit"] == 0.0001
    assert new["gain"] == pytest.approx(new["evidence"][0]["value"] / (1 - new["evidence"][0]["value"]))
    for form in ("text", "markdown", "html"):
        page = report_of(form)
        assert TITLE in page
        assert "phases are switched off sooner" in page


def test_without_the_change_there_is_none() -> None:
    assert TITLE not in (REPO / "tests/golden/report.txt").read_text(encoding="utf-8")
