"""CONTRIBUTING.md, adding a format of the report: done as the page shows it, to a copy of the package."""

from __future__ import annotations

import pytest

from tests.conftest import REPO
from tests.package_copy import PackageCopy, Paragraph

FORMAT = Paragraph("a report format")
(CODE,) = FORMAT.code
FILE = FORMAT.word(r"with this as `([\w/.]+)`")
TABLE = FORMAT.word(r"`FORMATS` in `([\w/.]+)`")
RUN = REPO / "tests/golden/perf_records.jsonl"


@pytest.fixture
def changed(package_copy: PackageCopy) -> PackageCopy:
    """A copy of the package that has the page's format."""
    package_copy.create(FILE, CODE)
    package_copy.insert(TABLE, ', "asciidoc"', ")", "\nFORMATS = (")
    return package_copy


def test_the_report_can_be_had_in_it(changed: PackageCopy) -> None:
    title, empty, *figures = changed.command("report", RUN, "--format", "asciidoc").splitlines()
    assert (title, empty) == ("= Run 20240129_103000", "")
    assert figures[:4] == ["MFU:: 5.0 %", "HFU:: 6.2 %", "TFLOPS/GPU:: 5.0", "tokens/s:: 10,240"]


def test_without_the_change_there_is_none() -> None:
    assert "asciidoc" not in (REPO / TABLE).read_text(encoding="utf-8")
