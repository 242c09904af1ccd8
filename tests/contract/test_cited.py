"""Figures of benchmarks in the pages are those of the last run that was kept, and those that missed a bar say
so there, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cited import MARK, REPO, cited, pages

RESULT = "arm   us\none  1.0\ntwo  2.0, bar 1.5: missed\n"


@pytest.mark.parametrize("page", pages(), ids=lambda path: path.name)
def test_every_citation_is_what_the_results_say(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert cited(text) == text, "run `make cite`"


def test_the_chinese_readme_cites_what_the_english_one_does() -> None:
    found = [
        [line for line in (REPO / name).read_text(encoding="utf-8").splitlines() if line.startswith(MARK)]
        for name in ("README.md", "README.zh-CN.md")
    ]
    assert set(found[0]) <= set(found[1])
    assert found[0] != []


def test_a_citation_follows_its_file(tmp_path: Path) -> None:
    (tmp_path / "result.txt").write_text(RESULT)
    mark = "before\n<!-- cited: result.txt | ^arm|two -->\n"
    page = f"{mark}```\nold\n```\nafter ```\n"
    shown = f"{mark}```\narm   us\ntwo  2.0, bar 1.5: missed\n```\nafter ```\n"
    assert cited(page, tmp_path) == shown
    assert cited(shown, tmp_path) == shown
    whole = "<!-- cited: result.txt -->\n```\n```\n"
    assert cited(whole, tmp_path) == f"<!-- cited: result.txt -->\n```\n{RESULT}```\n"


@pytest.mark.parametrize(
    "page",
    ["<!-- cited: result.txt -->\nno block\n", "<!-- cited: result.txt | nothing -->\n```\nold\n```\n"],
)
def test_a_citation_that_shows_nothing_is_refused(tmp_path: Path, page: str) -> None:
    (tmp_path / "result.txt").write_text(RESULT)
    with pytest.raises(ValueError, match="no line|no block"):
        cited(page, tmp_path)
