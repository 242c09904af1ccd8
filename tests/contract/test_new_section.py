"""CONTRIBUTING.md, adding a section to the report: done as the page shows it, to a copy of the package."""

from __future__ import annotations

import pytest

from tests.conftest import REPO
from tests.package_copy import PackageCopy, Paragraph

pytestmark = pytest.mark.long

SECTION = Paragraph("a report section")
(ROW,) = SECTION.code
FILE = SECTION.word(r"row of `_sections` in\s`([\w/.]+)`")
RUN = REPO / "tests/golden/perf_records.jsonl"
TITLE = "Tokens of this session"
FORMATS = ("text", "markdown", "html", "json", "csv")


@pytest.fixture
def changed(package_copy: PackageCopy) -> PackageCopy:
    """A copy of the package that has the page's section."""
    package_copy.insert(FILE, ROW, "    ]\n", "def _sections(")
    return package_copy


def test_text_markdown_and_html_show_it_and_formats_of_data_do_not(changed: PackageCopy) -> None:
    page = {form: changed.command("report", RUN, "--format", form) for form in FORMATS}
    text = page["text"]
    assert text[text.index(f"\n{TITLE}") :].splitlines()[1:] == [
        TITLE,
        "  trained         22,528",
        "  last iteration  tokens/s",
        "  10                10,240",
        "  20                10,240",
        "  25                10,240",
    ]
    assert "| trained | 22,528 |\n" in page["markdown"].partition(f"## {TITLE}\n")[2]
    assert "| 20 | 10,240 |\n" in page["markdown"].partition(f"## {TITLE}\n")[2]
    assert "<dt>trained</dt><dd>22,528</dd>" in page["html"].partition(f"{TITLE}</h2>")[2]
    assert '<tr><td>20</td><td class="n">10,240</td></tr>' in page["html"].partition(f"{TITLE}</h2>")[2]
    for form in ("json", "csv"):
        assert TITLE not in page[form]


def test_without_the_change_there_is_none() -> None:
    assert TITLE not in (REPO / FILE).read_text(encoding="utf-8")
